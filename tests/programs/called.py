"""Functions that `mcjax_launch.run` calls, by the name of this module."""

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable


def rank() -> int:
    return int(os.environ["JAX_PROCESS_ID"])


def times(number: int, plus: int = 0) -> int:
    print("called", file=sys.stderr)
    return rank() * number + plus


def big(size: int) -> bytes:
    return bytes([rank()]) * size


def beside(size: int, ready: str = "") -> pickle.PickleBuffer:
    """What a pickle holds as it does a NumPy array."""
    if ready:
        print(ready)
    return pickle.PickleBuffer(bytearray([rank()]) * size)


def changed(data: bytearray) -> pickle.PickleBuffer:
    data[0] += 1
    return pickle.PickleBuffer(bytearray(data))


def fails_once(size: int) -> bytes:
    if os.environ["MCJAX_RESTART"] == "0" and rank() == 1:
        raise KeyError("once")
    return big(size)


def has_no_room(size: int) -> bytes:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    return big(size)


class Own(Exception):
    def __init__(self, first: int, two: int) -> None:  # cannot be pickled: its args are others
        super().__init__("a message")


def fails(how: str) -> None:
    if rank() != 1:
        time.sleep(1000)
    if how == "KeyError":
        raise KeyError("no such thing")
    if how == "Own":
        raise Own(1, 2)
    os.kill(os.getpid(), 9)


def reads(name: str) -> str:
    with open(name) as file:
        return file.read()


def leaves() -> None:
    os._exit(0)


def unpicklable() -> object:
    return sys._getframe()


def make_adder() -> Callable[[int], int]:
    own = rank()
    return lambda number: number + own


def total() -> tuple[int, int, float]:
    import jax
    from jax.experimental.multihost_utils import process_allgather

    gathered = process_allgather(jax.process_index())
    return jax.process_count(), jax.device_count(), float(gathered.sum())


def fails_in_jax() -> None:
    from jax.experimental.multihost_utils import sync_global_devices

    if rank() == 1:
        raise ValueError("bad batch")
    sync_global_devices("never")

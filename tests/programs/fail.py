"""End rank 1 (or the rank in argv) of a running JAX job in the way that argv says."""

import atexit
import os
import signal
import sys
import time

import jax
from jax.experimental import multihost_utils

jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
way, culprit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1


def fail() -> None:
    if way == "late":  # after the usage of the ranks is known
        time.sleep(2)
    if way in ("raise", "late"):
        atexit.register(print, "saved in atexit", flush=True)
        raise ValueError("bad batch")
    if way == "agent":  # its host is lost, as far as the launcher can see
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), getattr(signal, way))


if jax.process_index() == culprit:
    fail()
multihost_utils.sync_global_devices("never")

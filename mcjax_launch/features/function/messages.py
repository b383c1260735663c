"""A function's call and its results, as files in a job's private folder: `mcjax_launch.run`.

Both hold a pickle in parts: the pickle itself, and the large buffers that it refers to, such as
those of NumPy arrays, which are copied nowhere on their way.
"""

from __future__ import annotations

import mmap
import os

from ...wire.codec import Nested, from_json, from_values, to_json
from ...wire.hook_messages import HookMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pickle import PickleBuffer
    from typing import Any, Union

    Buffer = Union[bytes, memoryview]

NAME = "function"
#: Name under which the ranks import the main file, as multiprocessing does.
MAIN = "__mp_main__"
#: The main file that this rank is importing; "" if it is not.
importing = ""

_CALL = "call"
# Each part begins at a multiple of this, so that JAX can use arrays in it without a copy.
_ALIGNMENT = 64
# Buffers with fewer bytes than this are copied into the pickle.
_LARGE = 1 << 16


class MainFile(Nested):
    """Main file of the program that makes the call."""

    path: str
    package: str
    source: str


class Call(Nested):
    """Head of a call's file: facts that a rank needs before it can unpickle the call.

    Args:
        folders: folders to import from.
        sources: sources of code that is in no file, such as a notebook's cells, by name.
        initializes: True to call jax.distributed.initialize() first.
        main: main file to import first; None if the call does not need it.
        argv: arguments of the main program, for that import.
        sizes: sizes of the pickle's parts, in bytes.

    """

    folders: tuple[str, ...]
    sources: dict[str, str]
    initializes: bool
    main: MainFile | None
    argv: tuple[str, ...]
    sizes: tuple[int, ...]


def pickle_in_parts(value: object, dumps: Callable[..., bytes]) -> list[Buffer]:
    """Pickle a value in parts, which share its memory.

    Args:
        value: any value that `dumps` can pickle.
        dumps: pickle.dumps or cloudpickle.dumps.

    """
    buffers: list[Buffer] = []

    def is_small(buffer: PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _LARGE:
            buffers.append(raw)
        return raw.nbytes < _LARGE

    return [dumps(value, protocol=5, buffer_callback=is_small), *buffers]


def unpickle(parts: Sequence[Any]) -> Any:
    """Return the value that is pickled in these parts; it uses their memory."""
    import pickle

    return pickle.loads(parts[0], buffers=parts[1:])


def list_sizes(parts: Sequence[Buffer]) -> tuple[int, ...]:
    """Return the size of each part, in bytes."""
    return tuple(map(len, parts))


# --- the call ---


def get_call_path(folder: str) -> str:
    """Return the path of the call's file in a host's private folder."""
    return os.path.join(folder, _CALL)


def make_call_file(call: Call, parts: Sequence[Buffer]) -> list[Buffer]:
    """Return the content of the call's file, in pieces."""
    pieces: list[Buffer] = [to_json(call).encode() + b"\n"]
    at = len(pieces[0])
    for part in parts:
        pieces += [bytes(-at % _ALIGNMENT), part]
        at += len(pieces[-2]) + len(part)
    return pieces


def read_call(path: str) -> tuple[Call, list[memoryview]]:
    """Read a call's file; return the call and its parts, in memory that reading ranks share."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    end = mapped.find(b"\n")
    call = from_values(Call, from_json(mapped[:end].decode()))
    return call, list(_split(memoryview(mapped), end + 1, call.sizes))


def _split(view: memoryview, at: int, sizes: Sequence[int]) -> Iterator[memoryview]:
    for size in sizes:
        at += -at % _ALIGNMENT
        yield view[at : at + size]
        at += size


# --- the result ---


def get_result_path(folder: str, rank: str) -> str:
    """Return the path of a rank's result file in its host's private folder.

    Args:
        folder: the host's private folder.
        rank: as in JAX_PROCESS_ID.

    """
    return os.path.join(folder, f"returned-{rank}")


class Returned(HookMessage):
    """Notice that the function's call is over, with its result in a file (see `get_result_path`).

    `kind` is "value" or "raised"; `sizes` are the sizes of the pickle's parts, in bytes.
    """

    kind: str
    sizes: tuple[int, ...]

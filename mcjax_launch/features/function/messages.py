"""A function's call and what it leads to, as files in a job's private folder: `mcjax_launch.run`.

Both hold a pickle in parts: the pickle itself, and the large buffers that it refers to, such as
those of NumPy arrays, which are copied nowhere on their way.
"""

from __future__ import annotations

import mmap
import os

from ...kernel.wire.codec import Nested, from_json, from_values, to_json
from ...kernel.wire.hook_messages import HookMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pickle import PickleBuffer
    from typing import Any, Union

    Buffer = Union[bytes, memoryview]

NAME = "function"
#: By which name the ranks import the main file, as multiprocessing does.
MAIN = "__mp_main__"
#: The main file that this rank is importing; "" if it is not.
importing = ""

_CALL = "call"
# With each part at such a multiple, processors and JAX take what is in it as it is.
_ALIGNMENT = 64
# Smaller buffers are better copied into the pickle.
_LARGE = 1 << 16


class MainFile(Nested):
    """The main file of the program that wants the call."""

    path: str
    package: str
    source: str


class Call(Nested):
    """What a rank has to know before it can unpickle the call.

    Args:
        folders: to import from.
        sources: by name, of what is in no file, such as a notebook's cells.
        initializes: call jax.distributed.initialize() first.
        main: to be imported, where the call needs it.
        argv: the program's own arguments, for that.
        sizes: of the pickle's parts.

    """

    folders: tuple[str, ...]
    sources: dict[str, str]
    initializes: bool
    main: MainFile | None
    argv: tuple[str, ...]
    sizes: tuple[int, ...]


def in_parts(value: object, dumps: Callable[..., bytes]) -> list[Buffer]:
    """A value's pickle in parts, which share its memory.

    Args:
        value: to be pickled.
        dumps: that of pickle, or of cloudpickle.

    """
    buffers: list[Buffer] = []

    def is_small(buffer: PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _LARGE:
            buffers.append(raw)
        return raw.nbytes < _LARGE

    return [dumps(value, protocol=5, buffer_callback=is_small), *buffers]


def unpickled(parts: Sequence[Any]) -> Any:
    """The value that these parts stand for, and whose memory they become."""
    import pickle

    return pickle.loads(parts[0], buffers=parts[1:])


def sizes_of(parts: Sequence[Buffer]) -> tuple[int, ...]:
    """How many bytes each part has."""
    return tuple(map(len, parts))


# --- the call ---


def call_path(folder: str) -> str:
    """Where the call is, in the private folder of a host."""
    return os.path.join(folder, _CALL)


def call_file(call: Call, parts: Sequence[Buffer]) -> list[Buffer]:
    """The content of the call's file, in pieces."""
    pieces: list[Buffer] = [to_json(call).encode() + b"\n"]
    at = len(pieces[0])
    for part in parts:
        pieces += [bytes(-at % _ALIGNMENT), part]
        at += len(pieces[-2]) + len(part)
    return pieces


def read_call(path: str) -> tuple[Call, list[memoryview]]:
    """A call and its parts: the memory of ranks that only read it is shared."""
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


# --- what it leads to ---


def returned_path(folder: str, rank: str) -> str:
    """Where a rank puts what its call has led to, in the private folder of its host.

    Args:
        folder: that one.
        rank: as in JAX_PROCESS_ID.

    """
    return os.path.join(folder, f"returned-{rank}")


class Returned(HookMessage):
    """A function's call is over, and what it led to is in a file (see `function_call`).

    `kind` is "value" or "raised"; `sizes` are those of the pickle's parts, in bytes.
    """

    kind: str
    sizes: tuple[int, ...]

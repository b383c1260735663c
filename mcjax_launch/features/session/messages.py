"""Calls on their way to the ranks, and what becomes of them on their way back.

A call and a result are each a file: in the caller without a name, on a host in the job's private
folder. It holds a pickle in parts: the pickle itself, and the large buffers that it refers to,
such as those of NumPy arrays, which are copied nowhere on their way. A call's file begins with a
line that says what a rank must know first.

    caller      Submit, Interrupt, EndCalls         a socket without a name; a file with each Submit
    launcher    raw bytes, then MakeCall            or Interrupt, EndCalls; to the hosts' agents
    agent       CallReady, EndCalls                 to the program of each rank
    rank        Ready, Returned                     the result's file beside it
"""

from __future__ import annotations

import mmap
import os

from ...wire.codec import Message, Nested, from_json, from_values, to_json
from ...wire.hook_messages import Failed, HookMessage
from ...wire.messages import ToAgent, ToLauncher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pickle import PickleBuffer
    from typing import Any, Union

    Buffer = Union[bytes, memoryview]

NAME = "session"
#: Name under which the ranks import the main file, as multiprocessing does.
MAIN = "__mp_main__"
#: The main file that this rank is importing; "" if it is not.
importing = ""

# Each part begins at a multiple of this, so that JAX can use arrays in it without a copy.
_ALIGNMENT = 64
# Buffers with fewer bytes than this are copied into the pickle.
_LARGE = 1 << 16


class Submit(Message):
    """The caller's call for some ranks, sent with the descriptor of its file.

    `ranks` is None for all ranks. `is_last` is True if the ranks' programs end with it.
    """

    number: int
    ranks: tuple[int, ...] | None
    is_last: bool


class AskWaiting(Message):
    """The caller's question which ranks wait for others in JAX."""


class Waiting(ToLauncher):
    """Answer of the launcher: the ranks, and the places where they wait, in words."""

    ranks: tuple[int, ...]
    places: tuple[str, ...]


class NotSubmitted(ToLauncher):
    """Answer of the launcher to an Interrupt: it has not got this call, which is the latest."""

    number: int


class MakeCall(ToAgent):
    """Order to let ranks of the host make a call, whose file has come before as raw bytes."""

    number: int
    ranks: tuple[int, ...] | None


class Interrupt(ToAgent):
    """Order to interrupt the ranks that make this call, as Ctrl-C does."""

    number: int


class ToRank(Message):
    """Message to the program of a rank."""


class CallReady(ToRank):
    """Order to make the call in the file that `get_call_path` names.

    `ranks` are those that make it; None for all.
    """

    number: int
    ranks: tuple[int, ...] | None = None


class EndCalls(ToAgent, ToRank):
    """Notice that no further call follows: the ranks end."""


class MainFile(Nested):
    """Main file of the program that makes the call."""

    path: str
    package: str
    source: str


class Call(Nested):
    """Head of a call's file: facts that a rank needs before it can unpickle the call.

    Args:
        folders: folders to import from.
        first_folders: those of them that come before the caller's standard library.
        sources: sources of code that is in no file, such as a notebook's cells, by name.
        initializes: True to call jax.distributed.initialize() first, if the rank has not yet.
        main: main file to import first; None if the call does not need it.
        argv: arguments of the main program, for that import.
        sizes: sizes of the pickle's parts, in bytes.
        cell: name of the text to run in `__main__`, which is one of `sources`, after the keyword
            arguments have become names there; "" for a function.
        shows: True if a cell returns what to show of its value (`hook/shown.py`), not the value.
        returns: True if a cell that shows also returns its value, which is not shown then.
        is_last: True if the rank's program ends with the call, and as the function ends.

    """

    folders: tuple[str, ...]
    sources: dict[str, str]
    initializes: bool
    main: MainFile | None
    argv: tuple[str, ...]
    sizes: tuple[int, ...]
    cell: str = ""
    shows: bool = False
    returns: bool = False
    is_last: bool = False
    first_folders: tuple[str, ...] = ()


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


def get_call_path(folder: str, number: int) -> str:
    """Return the path of a call's file in a host's private folder."""
    return os.path.join(folder, f"call-{number}")


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


def get_result_path(folder: str, rank: str, number: int) -> str:
    """Return the path of a rank's result file in its host's private folder.

    Args:
        folder: the host's private folder.
        rank: as in JAX_PROCESS_ID.
        number: number of the call.

    """
    return os.path.join(folder, f"returned-{number}-{rank}")


class Ready(HookMessage):
    """Notice that the rank's program can make calls."""


class Returned(HookMessage):
    """Notice that a call is over, with its result in a file (see `get_result_path`).

    `kind` is "value", "repr" (the text of a value that cannot be pickled) or "raised"; `sizes` are
    the sizes of the pickle's parts, in bytes: none for an exception that cannot be pickled.
    `failure` describes what was raised.
    """

    number: int
    kind: str
    sizes: tuple[int, ...]
    failure: Failed | None = None

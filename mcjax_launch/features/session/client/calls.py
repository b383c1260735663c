"""Calls on their way to the ranks, and what the ranks return or raise."""

from __future__ import annotations

import contextlib
import linecache
import os
import pickle
import sys
import tempfile
from collections import ChainMap, deque
from collections.abc import Callable, Mapping, Sequence
from importlib.util import decode_source
from io import BytesIO
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.messages import (
    MAIN,
    Call,
    MainFile,
    NotSubmitted,
    Returned,
    Submit,
    Waiting,
    list_sizes,
    make_call_file,
    pickle_in_parts,
    unpickle,
)
from mcjax_launch.machine.system import write_all
from mcjax_launch.wire import messages
from mcjax_launch.wire.frames import Decoder, Raw
from mcjax_launch.wording import cut_end

if TYPE_CHECKING:
    from mcjax_launch.features.session.messages import Buffer
    from mcjax_launch.python.job import RunningJob

LauncherAnswer = Waiting | NotSubmitted
Dumps = Callable[..., bytes]

_INSTALL = "pip install cloudpickle"
# Of a wrong argument.
_MOST_SHOWN = 40
# The name __main__ as a pickle has it: SHORT_BINUNICODE.
_MAIN = b"\x8c\x08__main__"
# What a main file has that can be imported without calling the function again.
_GUARD = "__main__"


# --- to the ranks ---


class PackedCall(NamedTuple):
    """Call for ranks.

    Args:
        name: name of the function or of the text, for messages.
        content: content of the call's file, as pieces that share the arguments' memory.

    """

    name: str
    content: Sequence[Buffer]


def pack_function(
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    *,
    initializes: bool,
    is_last: bool = False,
) -> PackedCall:
    """Pack the call of a function.

    Raises:
        LaunchError: the call cannot be pickled.
        TypeError: `function` is no function, or its arguments are not in a list and a dict.

    """
    if not callable(function):
        raise TypeError(f"run: {function!r} is not callable; launch runs a program")
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args: {_cut(args)} is not a list or tuple; write ({_cut(args)},)")
    if not isinstance(kwargs, (Mapping, type(None))):
        raise TypeError(f"kwargs: {_cut(kwargs)} is not a dict; write {{'name': {_cut(kwargs)}}}")
    name = str(getattr(function, "__name__", None) or repr(function))
    parts, main = _pickle_call(function, tuple(args), dict(kwargs or {}), name)
    whole = [(file, entry[2]) for file, entry in linecache.cache.items() if len(entry) > 1]
    head = _make_head(initializes).copy_with(
        # Of notebooks' cells, for tracebacks.
        sources={file: "".join(lines) for file, lines in whole if not os.path.exists(file)},
        main=main,
        argv=tuple(sys.argv),
        is_last=is_last,
    )
    return _pack(name, head, parts)


def pack_cell(
    source: str,
    name: str,
    *,
    initializes: bool,
    shows: bool = False,
    returns: bool = False,
    values: Mapping[str, object] | None = None,
) -> PackedCall:
    """Pack the run of a text in `__main__`.

    Args:
        source: Python code.
        name: stands in place of a file in tracebacks.
        initializes: True to call jax.distributed.initialize() first, if the rank has not yet.
        shows: True to return what to show of the last expression's value, not the value.
        returns: True to return the value, too (see `Call`).
        values: values to give names there first.

    Raises:
        LaunchError: a value cannot be pickled.

    """
    head = _make_head(initializes).copy_with(
        sources={name: source}, cell=name, shows=shows, returns=returns
    )
    dumps = _choose_dumps() if values else pickle.dumps
    try:
        parts = pickle_in_parts((None, (), dict(values or {})), dumps)
    except Exception as error:  # whatever the caller's objects raise
        raise LaunchError(f"{', '.join(values or ())} cannot be pickled: {error}") from None
    return _pack(name, head, parts)


def submit(
    job: RunningJob,
    call: PackedCall,
    number: int,
    ranks: Sequence[int] | None = None,
    *,
    is_last: bool = False,
) -> None:
    """Hand a call to a job's launcher. The call before must be over.

    Args:
        job: the job.
        call: the call.
        number: number of the call.
        ranks: ranks that are to make it; None for all.
        is_last: True if the ranks end with it.

    Raises:
        LaunchError: there is no room for its arguments.

    """
    try:
        with tempfile.TemporaryFile(buffering=0) as file:
            for piece in call.content:
                write_all(file, piece)
            job.send(
                Submit(number, None if ranks is None else tuple(ranks), is_last), [file.fileno()]
            )
    except OSError as error:
        why = f"{error.strerror} in {tempfile.gettempdir()}; set TMPDIR to another directory"
        raise LaunchError(f"run: no room for the function's arguments: {why}") from None


def _make_head(initializes: bool) -> Call:
    folders = tuple(os.path.abspath(folder) for folder in sys.path)
    library = os.path.dirname(os.__file__)
    first = folders[: folders.index(library)] if library in folders else ()
    return Call(folders, {}, initializes, None, (), (), first_folders=first)


def _pack(name: str, head: Call, parts: Sequence[Buffer]) -> PackedCall:
    return PackedCall(name, make_call_file(head.copy_with(sizes=list_sizes(parts)), parts))


def _cut(value: object) -> str:
    return cut_end(repr(value), _MOST_SHOWN)


def _pickle_call(
    function: Callable[..., Any],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    name: str,
) -> tuple[list[Buffer], MainFile | None]:
    """Return a pickled call, and the main file if ranks must import it to load the call.

    Raises:
        LaunchError: the call cannot be pickled; the message names a cure.

    """
    main: MainFile | None = None
    cloudpickle: Any = sys.modules.get("cloudpickle")
    if cloudpickle is None or not cloudpickle.list_registry_pickle_by_value():
        with contextlib.suppress(Exception):  # cloudpickle may be able to, else it is told below
            parts = pickle_in_parts((function, args, kwargs), pickle.dumps)
            main = _find_main_file() if _MAIN in parts[0] else None
            if _MAIN not in parts[0] or (main is not None and _GUARD in main.source):
                return parts, main
    dumps = _choose_dumps()
    try:
        parts = pickle_in_parts((function, args, kwargs), dumps)
    except Exception as error:  # whatever the caller's objects raise
        what = _find_unpicklable(args, kwargs, dumps)
        cure = f"cloudpickle can pickle more: {_INSTALL}" if dumps is pickle.dumps else ""
        cure = f"create it inside {name}, in the ranks" if what or not cure else cure
        uses = "" if dumps is pickle.dumps else ", or what it uses,"
        of = f"{what}, an argument of {name}," if what else f"{name}{uses}"
        raise LaunchError(f"run: {of} cannot be pickled: {error}; {cure}") from error
    if dumps is pickle.dumps and main is None:
        raise LaunchError(
            f"run: {name} needs names that only __main__ defines, which the ranks cannot import: "
            f"{_INSTALL}, or move it to a module"
        )
    return parts, main if dumps is pickle.dumps else None


def _find_unpicklable(args: Sequence[object], kwargs: Mapping[str, object], dumps: Dumps) -> str:
    """Return the first argument that cannot be pickled, as `args[1]`; "" if all can."""
    arguments = {f"args[{place}]": value for place, value in enumerate(args)}
    for name, value in {**arguments, **{f"kwargs[{key!r}]": kwargs[key] for key in kwargs}}.items():
        try:
            pickle_in_parts(value, dumps)
        except Exception:
            return name
    return ""


def _choose_dumps() -> Dumps:
    """Return a `cloudpickle.dumps` in which code keeps the name of its file, for tracebacks.

    Without cloudpickle, that is `pickle.dumps`.

    Source: cloudpickle 3.1.3 replaces each file's name by "<dynamic-code>", so that equal code
    gives equal pickles.
    """
    try:
        from cloudpickle import CloudPickler
    except ImportError:
        return pickle.dumps

    def with_file(code: CodeType) -> tuple[Any, ...]:
        make, fields = CloudPickler.dispatch_table[CodeType](code)
        file = code.co_filename
        return make, tuple(
            file if isinstance(field, str) and field == "<dynamic-code>" else field
            for field in fields
        )

    class ByValue(CloudPickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: with_file}, CloudPickler.dispatch_table)

    def dumps(value: object, **options: Any) -> bytes:
        file = BytesIO()
        ByValue(file, **options).dump(value)
        return file.getvalue()

    return dumps


def _find_main_file() -> MainFile | None:
    """Return the file of the main program; None if there is no readable one, as in a notebook."""
    main: Any = sys.modules["__main__"]
    try:
        with open(main.__file__, "rb") as file:
            source = decode_source(file.read())
    except (AttributeError, OSError, SyntaxError, UnicodeDecodeError):  # none, or compiled
        return None
    package = getattr(main, "__package__", None) or ""
    return MainFile(os.path.abspath(main.__file__), package, source)


# --- from the ranks ---


class Repr(str):
    """Text of a value that stays in its rank, such as an array over several processes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Answer:
    """Value or exception of a rank: parts of a pickle, each in separate memory.

    Args:
        told: the rank's report.

    """

    def __init__(self, told: Returned) -> None:
        self.told = told
        self._parts = [bytearray(size) for size in told.sizes]
        self._empty = deque(memoryview(part) for part in self._parts if part)

    @property
    def is_complete(self) -> bool:
        """True if all parts have been received."""
        return not self._empty

    def fill(self, data: bytes) -> None:
        """Copy the next bytes into the parts that are not yet complete."""
        rest = memoryview(data)
        while rest and self._empty:
            room = self._empty.popleft()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            if count < len(room):
                self._empty.appendleft(room[count:])

    def unpickle(self) -> Any:
        """Return the rank's return value or exception, which uses the memory of the parts.

        Raises:
            Exception: any error of unpickling, as for a class that cannot be imported here, or an
                exception that the rank could not pickle.

        """
        sys.modules.setdefault(MAIN, sys.modules["__main__"])  # as multiprocessing does
        value = unpickle(self._parts)
        return Repr(value) if self.told.kind == "repr" else value


def unpickle_value(rank: int, answer: Answer, name: str) -> Any:
    """Return the value of a call in a rank.

    Args:
        rank: the rank.
        answer: its answer.
        name: name of the call.

    Raises:
        LaunchError: it cannot be unpickled here, as for a class that cannot be imported.

    """
    try:
        return answer.unpickle()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        told = f"the value that {name} returned in rank {rank} cannot be unpickled here: {why}"
        raise LaunchError(told) from error


class RankValues:
    """Collector of ranks' answers to the latest call; each part of a pickle is copied only once.

    Attributes:
        on_answer: called with a rank whose answer is complete.
        on_answer_of_launcher: called with the launcher's answer to a question.

    """

    def __init__(self) -> None:
        self.on_answer: Callable[[int], object] = lambda rank: None
        self.on_answer_of_launcher: Callable[[LauncherAnswer], object] = lambda answer: None
        self._decoder = Decoder(messages.ToLauncher)
        self._of_ranks: dict[int, Answer] = {}

    def feed(self, data: memoryview) -> bool:
        """Process frames from the launcher; return True to get more."""
        for frame in self._decoder.feed(data):
            match frame:
                case messages.Started(rank):
                    self._of_ranks.pop(rank, None)  # that of an earlier process
                case Waiting() | NotSubmitted():
                    self.on_answer_of_launcher(frame)
                case messages.FromHook(rank, Returned() as told):
                    self._of_ranks[rank] = Answer(told)
                    self._report(rank)
                case Raw(number=rank, payload=payload) if rank in self._of_ranks:
                    self._of_ranks[rank].fill(payload)
                    self._report(rank)
        return True

    def _report(self, rank: int) -> None:
        if self._of_ranks[rank].is_complete:
            self.on_answer(rank)

    def has(self, kind: Literal["value", "raised"], rank: int) -> bool:
        """Return whether a rank's value, or its exception, has been received completely."""
        answer = self._of_ranks.get(rank)
        return answer is not None and answer.told.kind == kind and answer.is_complete

    def pop(self, rank: int) -> Answer:
        """Remove and return a rank's answer."""
        return self._of_ranks.pop(rank)

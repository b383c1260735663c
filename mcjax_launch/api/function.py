"""`run` and `run_async`: pack a function for N ranks, and unpack its return values."""

from __future__ import annotations

import ast
import linecache
import os
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from importlib.util import decode_source
from io import BytesIO
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack

from mcjax_launch.api.events import Deliver, InLoop, call_now
from mcjax_launch.api.job import RunningJob
from mcjax_launch.api.keywords import add_keywords
from mcjax_launch.api.launching import make_job
from mcjax_launch.api.result import JobFailed, Result
from mcjax_launch.api.signature import Keywords
from mcjax_launch.api.values import RankValues
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.function.messages import (
    Call,
    MainFile,
    list_sizes,
    make_call_file,
    pickle_in_parts,
)
from mcjax_launch.ranks import format_ranks
from mcjax_launch.wire.exit_status import FAILED

if TYPE_CHECKING:
    from types import FrameType

    from mcjax_launch.features.function.messages import Buffer

# --- packing a call ---

_INSTALL = "pip install cloudpickle"
# The name __main__ as a pickle has it: SHORT_BINUNICODE.
_MAIN = b"\x8c\x08__main__"


def pack_call(
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    initialize: bool,
) -> tuple[Buffer, ...]:
    """Return the content of the call's file, as pieces that share the arguments' memory.

    Raises:
        LaunchError: the call cannot be pickled.
        TypeError: `function` is no function.

    """
    if not callable(function):
        raise TypeError(f"run: {function!r} is not callable; launch runs a program")
    parts, main = _pickle_call(function, (function, tuple(args), dict(kwargs)))
    call = Call(
        folders=tuple(os.path.abspath(folder) for folder in sys.path),
        sources=_collect_fileless_sources(),
        initializes=initialize,
        main=main,
        argv=tuple(sys.argv),
        sizes=list_sizes(parts),
    )
    return tuple(make_call_file(call, parts))


def get_function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function for a message."""
    return str(getattr(function, "__name__", None) or repr(function))


def _pickle_call(
    function: Callable[..., Any], call: object
) -> tuple[list[Buffer], MainFile | None]:
    """Return a pickled call, and the main file if ranks must import it to load the call.

    Raises:
        LaunchError: the call cannot be pickled; the message names a cure.

    """
    why = ""
    if not _has_modules_by_value():
        try:
            parts = pickle_in_parts(call, pickle.dumps)
        except Exception as error:  # whatever the caller's objects raise
            why = f"cannot be pickled ({error}); cloudpickle may be able to: {_INSTALL}"
        else:
            if _MAIN not in parts[0]:
                return parts, None
            main = _find_main_file()
            if main is not None and not _would_call_again(main.source):
                return parts, main
            why = (
                f"is in {main.path}, and would be called again when the ranks import that file: "
                f'put the call under `if __name__ == "__main__":`, or {_INSTALL}'
                if main is not None
                else "needs names that only __main__ defines, which the ranks cannot import: "
                f"{_INSTALL}, or move it to a module"
            )
    name = get_function_name(function)
    try:
        dumps = _make_dumps_by_value()
    except ImportError:
        raise LaunchError(f"run: {name} {why}") from None
    try:
        return pickle_in_parts(call, dumps), None
    except Exception as error:
        raise LaunchError(f"run: {name} cannot be pickled ({error})") from error


def _make_dumps_by_value() -> Callable[..., bytes]:
    """Return a `cloudpickle.dumps` in which code keeps the name of its file, for tracebacks.

    Source: cloudpickle 3.1.3 replaces each file's name by "<dynamic-code>", so that equal code
    gives equal pickles.
    """
    from cloudpickle import CloudPickler

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


def _has_modules_by_value() -> bool:
    """Return whether the user told cloudpickle to pickle any module by value."""
    cloudpickle: Any = sys.modules.get("cloudpickle")
    return cloudpickle is not None and bool(cloudpickle.list_registry_pickle_by_value())


def _find_main_file() -> MainFile | None:
    """Return the file of the main program; None if there is no readable one, as in a notebook."""
    main: Any = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            source = decode_source(file.read())
    except (OSError, SyntaxError, UnicodeDecodeError):  # in an archive, or compiled
        return None
    return MainFile(os.path.abspath(path), getattr(main, "__package__", None) or "", source)


def _would_call_again(source: str) -> bool:
    """Return whether importing the main file would call `run` again: the call is under no `if`."""
    names = vars(sys.modules["__main__"])
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (
        frame.f_globals is names and frame.f_code.co_name == "<module>"
    ):
        frame = frame.f_back
    if frame is None:  # the call was made in another thread
        return False
    line = frame.f_lineno
    branches = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If))
    return not any(node.lineno <= line <= (node.end_lineno or 0) for node in branches)


def _collect_fileless_sources() -> dict[str, str]:
    """Return sources without a file, such as notebook cells, by name, for tracebacks."""
    whole = [(name, entry[2]) for name, entry in linecache.cache.items() if len(entry) > 1]
    return {name: "".join(lines) for name, lines in whole if not os.path.exists(name)}


# --- run and run_async ---

T = TypeVar("T")

# The program of the ranks, as a rank's Python finds it: in the hook's own package.
_PROGRAM = "_mcjax_launch.features.function.hook"
_PROCESSES = 4
# Keywords of `launch` that are only for programs, so that `run` refuses them.
_OF_PROGRAMS = ("module", "no_hook", "wrap", "debugpy")


class RankTraceback(Exception):
    """Traceback in a rank, as text: the `__cause__` of an exception that `run` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Call:
    """Call of a function, packed for the ranks, with the values that they return.

    Raises:
        LaunchError: the call cannot be pickled.
        TypeError: `function` is no function.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[object],
        kwargs: Mapping[str, object] | None,
        initialize: bool,
    ) -> None:
        self._packed = pack_call(function, args, kwargs or {}, initialize)
        self._name = get_function_name(function)
        self._returns = RankValues()

    def prepare_job(self, keywords: Mapping[str, Any], deliver: Deliver = call_now) -> RunningJob:
        """Return the job that makes the call, not started yet.

        Raises:
            LaunchError: a keyword has a value that its option rejects.
            TypeError: a keyword is unknown, or only for `launch`.

        """
        for keyword in _OF_PROGRAMS:
            if keywords.get(keyword):
                raise TypeError(f"{keyword!r} is for programs; use launch")
        keywords = {"echo": True, "processes": _PROCESSES, **keywords, "module": True}
        return make_job(_PROGRAM, (), keywords, deliver, self._packed, self._returns)

    def collect_values(self, result: Result) -> list[Any]:
        """Return the ranks' return values, in order of rank.

        Raises:
            Exception: the exception that the function raised in the root-cause rank.
            JobFailed: the job has failed for another reason.
            LaunchError: the function has not returned in every rank.

        """
        if result.ok:
            ranks = [rank.rank for rank in result.ranks]
            if without := [rank for rank in ranks if not self._returns.has("value", rank)]:
                raise LaunchError(
                    f"run: {self._name} has not returned in {format_ranks(without)}", FAILED
                )
            return [self._returns.pop(rank) for rank in ranks]
        cause = result.root_cause
        if cause is None or cause.rank is None or not self._returns.has("raised", cause.rank):
            raise JobFailed(result)
        try:
            error = self._returns.pop(cause.rank)
        except Exception:  # its class cannot be imported here
            raise JobFailed(result) from None
        error.add_note(
            f"raised by {self._name} in {format_ranks(cause.ranks)} of {len(result.ranks)}"
        )
        raise error from RankTraceback(cause.traceback or "")


def run(
    function: Callable[..., T],
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    initialize: bool = True,
    **keywords: Unpack[Keywords],
) -> list[T]:
    """Call a function in each rank of a new JAX job; return its values in order of rank.

    Ranks are separate processes, in which jax.distributed.initialize() has returned before
    the call. Their output is printed here, unless `echo=False`.

    Args:
        function: pickled by name if the ranks can import it: from a module, or from the main
            script, which they import too, so its other code must be under
            `if __name__ == "__main__":`. Lambdas and functions of a notebook need cloudpickle.
        args: positional arguments of the function, the same in all ranks; not to be changed
            before it has returned.
        kwargs: keyword arguments of the function, likewise.
        initialize: False to call the function without jax.distributed.initialize().
        keywords: see `launch`; the default of `processes` is 4.

    Raises:
        Exception: the exception that the function raised in the root-cause rank; a note names
            the ranks, and its `__cause__` shows the traceback there.
        JobFailed: the job has failed for another reason.
        LaunchError: the job could not be started, or the function cannot be pickled.

    """
    call = _Call(function, args, kwargs, initialize)
    return call.collect_values(call.prepare_job(keywords).run())


async def run_async(
    function: Callable[..., T],
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    initialize: bool = True,
    **keywords: Unpack[Keywords],
) -> list[T]:
    """Call a function in each rank as `run` does, for asyncio; cancelling the call ends the job."""
    import asyncio  # needed by its users only

    call = _Call(function, args, kwargs, initialize)
    deliver = InLoop(asyncio.get_running_loop())
    job = await asyncio.to_thread(call.prepare_job, keywords, deliver)
    return call.collect_values(await job.begin())


for _function in (run, run_async):
    add_keywords(_function, processes=_PROCESSES, echo=True)

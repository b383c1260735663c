"""`run` and `run_async`: a function in N ranks, and what it returns there."""

from __future__ import annotations

import base64
import linecache
import os
import pickle
import pickletools
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from mcjax_launch.api.events import Deliver, at_once
from mcjax_launch.api.job import RunningJob
from mcjax_launch.api.keywords import Keywords, with_keywords
from mcjax_launch.api.launching import made
from mcjax_launch.api.result import JobFailed, Result
from mcjax_launch.errors import LaunchError
from mcjax_launch.protocol import hook_messages, messages
from mcjax_launch.protocol.codec import Message
from mcjax_launch.protocol.exit_status import FAILED
from mcjax_launch.ranks import these_ranks

T = TypeVar("T")

# Where a rank's Python finds it: the hook's modules, under the hook's own name.
_PROGRAM = "_mcjax_launch.hook.mcjax_hook.function"
_INSTALL = "pip install cloudpickle"
_PROCESSES = 4
# Keywords of `launch` that say how a program is run, where there is none.
_OF_PROGRAMS = ("module", "no_hook", "wrap", "debugpy")


class RankTraceback(Exception):
    """The traceback of an exception in a rank, as text: the cause of that which `run` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Returns:
    """Collects what the ranks report of the call.

    Attributes:
        values: the pickled value of each rank whose call has returned.
        raised: the pickled exception of each rank whose call has raised one.

    """

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.raised: dict[int, bytes] = {}
        self._parts: dict[int, list[str]] = {}

    def take(self, message: Message) -> None:
        """Take a message of an agent's, whatever it is."""
        match message:
            case messages.FromHook(rank, hook_messages.Returned(kind, data, last)):
                parts = self._parts.setdefault(rank, [])
                parts.append(data)
                if last:
                    kept = self.values if kind == "value" else self.raised
                    kept[rank] = base64.b64decode("".join(self._parts.pop(rank)))


class _Call:
    """A call, in a file for the ranks while it is a context, and what it leads to.

    Raises:
        LaunchError: it cannot be pickled.
        TypeError: it is no function.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        initialize: bool,
    ) -> None:
        if not callable(function):
            raise TypeError(f"run: {function!r} is not callable; launch runs a program")
        call = _pickled(function, (function, tuple(args), dict(kwargs)))
        here = [os.path.abspath(folder) for folder in sys.path]
        self._name = _name(function)
        self._data = pickle.dumps((here, _sources_of_no_files(), initialize, call))
        self._folder = ""
        self._returns = Returns()

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="mcjax-call-")
        with open(os.path.join(self._folder, "call"), "wb") as file:
            file.write(self._data)
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def job(self, keywords: Mapping[str, Any], deliver: Deliver = at_once) -> RunningJob:
        """The job that makes the call, not started yet.

        Raises:
            LaunchError: it cannot be started, as far as is known at once.
            TypeError: a keyword is for programs.

        """
        for keyword in _OF_PROGRAMS:
            if keywords.get(keyword):
                raise TypeError(f"{keyword!r} is for programs; use launch")
        keywords = {"echo": True, **keywords, "module": True}
        path = os.path.join(self._folder, "call")
        if keywords.get("hosts") is not None or keywords.get("sync"):
            given = keywords.get("sync") or ()
            given = (given,) if isinstance(given, (str, os.PathLike)) else given
            keywords["sync"] = (*given, path)  # the folder that it is copied to is theirs then
            path = "call"
        return made((_PROGRAM, path), (), keywords, deliver, self._returns.take)

    def outcome(self, result: Result) -> list[Any]:
        """What the ranks returned, in order.

        Raises:
            Exception: what the function has raised.
            JobFailed: the job has failed otherwise.

        """
        if result.ok:
            values = self._returns.values
            if without := [rank.rank for rank in result.ranks if rank.rank not in values]:
                raise LaunchError(
                    f"run: {self._name} has not returned in {these_ranks(without)}", FAILED
                )
            return [pickle.loads(values[rank.rank]) for rank in result.ranks]
        cause = result.root_cause
        data = (
            self._returns.raised.get(cause.rank, b"") if cause and cause.rank is not None else b""
        )
        if cause is None or not data:
            raise JobFailed(result)
        try:
            error = pickle.loads(data)
        except Exception:  # of a class that is not to be had here
            raise JobFailed(result) from None
        error.add_note(
            f"raised by {self._name} in {these_ranks(cause.ranks)} of {len(result.ranks)}"
        )
        raise error from RankTraceback(cause.traceback or "")


def _pickled(function: Callable[..., Any], call: object) -> bytes:
    """A call, as the ranks can load it.

    Raises:
        LaunchError: it cannot be pickled; says what helps.

    """
    try:
        import cloudpickle
    except ImportError:
        dumps, has = pickle.dumps, False
    else:
        dumps, has = cloudpickle.dumps, True
    name = _name(function)
    advice = "" if has else f"; with cloudpickle it may: {_INSTALL}"
    try:
        data: bytes = dumps(call)
    except Exception as error:  # whatever the caller's objects raise
        raise LaunchError(f"run: {name} cannot be pickled ({error}){advice}") from error
    if not has and _names_main(data):
        raise LaunchError(
            f"run: {name} needs what only __main__ defines, which the ranks cannot import: "
            f"{_INSTALL}, or move it to a module"
        )
    return data


def _sources_of_no_files() -> dict[str, str]:
    """By name: the sources of what is in no file, such as a notebook's cells, for tracebacks."""
    whole = [(name, entry[2]) for name, entry in linecache.cache.items() if len(entry) > 1]
    return {name: "".join(lines) for name, lines in whole if not os.path.exists(name)}


def _names_main(data: bytes) -> bool:
    """Whether a pickle refers to something of `__main__`."""
    found = (str(argument) for _, argument, _ in pickletools.genops(data) if argument is not None)
    return any(text == "__main__" or text.startswith("__main__ ") for text in found)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", None) or repr(function))


def run(
    function: Callable[..., T],
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    initialize: bool = True,
    **keywords: Unpack[Keywords],
) -> list[T]:
    """Call a function in each rank of a JAX job of its own; what it returned, in rank order.

    The ranks are processes of their own, in which jax.distributed.initialize() has returned before
    the call. What they print is printed here, unless `echo=False`.

    Args:
        function: can be pickled. One that a notebook or the main script defines needs cloudpickle.
        args: positional arguments of the function, the same in all ranks.
        kwargs: its keyword arguments.
        initialize: call jax.distributed.initialize() first.
        keywords: see `launch`; `processes` is 4 as a rule.

    Raises:
        Exception: what the function has raised in the rank that is the root cause; a note names
            the ranks, and its `__cause__` shows the traceback there.
        JobFailed: the job has failed otherwise.
        LaunchError: it could not be started, or the function cannot be pickled.

    """
    keywords.setdefault("processes", _PROCESSES)
    with _Call(function, args, kwargs or {}, initialize) as call:
        return call.outcome(call.job(keywords).run())


async def run_async(
    function: Callable[..., T],
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    initialize: bool = True,
    **keywords: Unpack[Keywords],
) -> list[T]:
    """As `run`, for asyncio: if it is cancelled, the job ends first."""
    import asyncio  # as only those need who have it

    from mcjax_launch.api.deliver import InLoop

    keywords.setdefault("processes", _PROCESSES)
    with _Call(function, args, kwargs or {}, initialize) as call:
        deliver = InLoop(asyncio.get_running_loop())
        job = await asyncio.to_thread(call.job, keywords, deliver)
        return call.outcome(await job.begin())


for _function in (run, run_async):
    with_keywords(_function, processes=_PROCESSES, echo=True)

"""`run`: a function in N ranks, from a Python program; jobs whose ranks make calls."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.client.calls import (
    RankValues,
    pack_function,
    submit,
    unpickle_value,
)
from mcjax_launch.python.job import RunningJob
from mcjax_launch.python.keywords import Keywords, add_keywords
from mcjax_launch.python.launching import make_job
from mcjax_launch.python.result import JobFailed, Result
from mcjax_launch.ranks import format_ranks
from mcjax_launch.wire.exit_status import FAILED

T = TypeVar("T")
#: The number of ranks that make calls, if no keyword gives it.
PROCESSES = 4

# The program of ranks that make calls, as a rank's Python finds it: in the hook's own package.
_CALLED = "_mcjax_launch.features.session.hook.call_server"
# Keywords that such ranks cannot have.
_OF_PROGRAMS = ("module", "no_hook", "wrap")


class RankTraceback(Exception):
    """Traceback in a rank, as text: the `__cause__` of an exception that `run` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


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
        args: positional arguments of the function, the same in all ranks.
        kwargs: keyword arguments of the function, likewise.
        initialize: False to call the function without jax.distributed.initialize().
        keywords: see `launch`; the default of `processes` is 4.

    Raises:
        Exception: the exception that the function raised in the root-cause rank; a note names
            the ranks, and its `__cause__` shows the traceback there.
        JobFailed: the job has failed for another reason.
        LaunchError: the job could not be started, or the function cannot be pickled.

    """
    call = pack_function(function, args, kwargs, initializes=initialize, is_last=True)
    values = RankValues()
    job = make_calling_job(keywords, values)
    try:
        job.start()
        submit(job, call, 1, is_last=True)
        return _collect_values(job.wait(), values, call.name)
    except BaseException:
        job.end(signal.SIGINT)
        raise


def _collect_values(result: Result, values: RankValues, name: str) -> list[Any]:
    """Return the values of the ranks' only call, in order of rank.

    Args:
        result: the job's result.
        values: what the ranks have answered.
        name: name of the function.

    Raises:
        Exception: the exception that the function raised in the root-cause rank.
        JobFailed: the job has failed for another reason.
        LaunchError: the function has not returned in every rank.

    """
    if result.ok:
        ranks = [rank.rank for rank in result.ranks]
        if without := [rank for rank in ranks if not values.has("value", rank)]:
            raise LaunchError(f"run: {name} returned no value in {format_ranks(without)}", FAILED)
        return [unpickle_value(rank, values.pop(rank), name) for rank in ranks]
    cause = result.root_cause
    if cause is None or cause.rank is None or not values.has("raised", cause.rank):
        raise JobFailed(result)
    try:
        error = values.pop(cause.rank).unpickle()
    except Exception:  # its class cannot be imported here
        raise JobFailed(result) from None
    error.add_note(f"raised by {name} in {format_ranks(cause.ranks)} of {len(result.ranks)}")
    raise error from RankTraceback(cause.traceback or "")


def make_calling_job(
    keywords: Mapping[str, Any], values: RankValues, argv: Sequence[str] = ()
) -> RunningJob:
    """Return a job whose ranks make calls, not started yet.

    Args:
        keywords: keywords of `launch`; output is printed unless `echo=False`.
        values: collects what the calls return.
        argv: `sys.argv[1:]` of the ranks, in which placeholders are filled in.

    Raises:
        LaunchError: a keyword has a value that its option rejects.
        TypeError: a keyword is unknown, or only for `launch`.

    """
    for keyword in _OF_PROGRAMS:
        if keywords.get(keyword):
            raise TypeError(f"{keyword!r} is for programs; use launch")
    keywords = {"echo": True, "processes": PROCESSES, **keywords, "module": True}
    return make_job(_CALLED, argv, keywords, values.feed)


add_keywords(run, processes=PROCESSES, echo=True)

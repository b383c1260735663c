"""`run` and `run_async`: a session of one call, which is the ranks' last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from mcjax_launch.errors import LaunchError
from mcjax_launch.python.called_ranks import PROCESSES, CalledRanks
from mcjax_launch.python.events import Deliver, InLoop, call_now
from mcjax_launch.python.keywords import add_keywords
from mcjax_launch.python.packing import pack_function
from mcjax_launch.python.result import JobFailed, Result
from mcjax_launch.python.signature import Keywords
from mcjax_launch.python.values import unpickle_value
from mcjax_launch.ranks import format_ranks
from mcjax_launch.wire.exit_status import FAILED

T = TypeVar("T")


class RankTraceback(Exception):
    """Traceback in a rank, as text: the `__cause__` of an exception that `run` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Call:
    """Call of a function as the only one of new ranks, which end with it.

    Raises:
        LaunchError: the call cannot be pickled, or a keyword has a value that its option rejects.
        TypeError: `function` is no function; or a keyword is unknown, or only for `launch`.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[object],
        kwargs: Mapping[str, object] | None,
        initialize: bool,
        keywords: Mapping[str, Any],
        deliver: Deliver = call_now,
    ) -> None:
        call = pack_function(function, args, kwargs, initializes=initialize, is_last=True)
        self._name = call.name
        self._ranks = CalledRanks(keywords, deliver)
        self._ranks.submit(call, is_last=True)
        self.job = self._ranks.job

    def collect_values(self, result: Result) -> list[Any]:
        """Return the ranks' return values, in order of rank.

        Raises:
            Exception: the exception that the function raised in the root-cause rank.
            JobFailed: the job has failed for another reason.
            LaunchError: the function has not returned in every rank.

        """
        if result.ok:
            ranks = [rank.rank for rank in result.ranks]
            if without := [rank for rank in ranks if not self._ranks.values.has("value", rank)]:
                raise LaunchError(
                    f"run: {self._name} returned no value in {format_ranks(without)}",
                    FAILED,
                )
            values = self._ranks.values
            return [unpickle_value(rank, values.pop(rank), self._name) for rank in ranks]
        cause = result.root_cause
        values = self._ranks.values
        if cause is None or cause.rank is None or not values.has("raised", cause.rank):
            raise JobFailed(result)
        try:
            error = values.pop(cause.rank).unpickle()
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
    call = _Call(function, args, kwargs, initialize, keywords)
    return call.collect_values(call.job.run())


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

    deliver = InLoop(asyncio.get_running_loop())
    call = await asyncio.to_thread(_Call, function, args, kwargs, initialize, keywords, deliver)
    return call.collect_values(await call.job.begin())


for _function in (run, run_async):
    add_keywords(_function, processes=PROCESSES, echo=True)

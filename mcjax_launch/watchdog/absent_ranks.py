"""Ranks that wait in vain, for a rank that is gone or for what cannot happen; reported once."""

from mcjax_launch.run.rank_run import RankRun
from mcjax_launch.run.state import RunState

_NEVER_CAME = (
    "exited with 0 without calling initialize(); the other ranks are waiting for it there "
    "(Ctrl-C ends the job, --start-timeout does so by itself)"
)


class AbsentRanks:
    """Remembers which ranks have been reported."""

    def __init__(self) -> None:
        self._reported: set[int] = set()
        self._reported_hopeless = False

    def notes(self, state: RunState) -> list[str]:
        """Lines on what has not been reported yet.

        Call it whenever a rank ends or begins to wait: either may come first.
        """
        if not state.initialize_calls or state.ending:
            return []
        lines = self._hopeless(state)
        awaited = any(_waits(run, state) for run in state.running)
        for rank, run in state.ranks.items():
            action = _action(run, awaited) if state.running and run.status == 0 else ""
            if action and rank not in self._reported:
                self._reported.add(rank)
                lines.append(f"rank {rank} {action}")
        return lines

    def _hopeless(self, state: RunState) -> list[str]:
        from mcjax_launch.diagnosis.initialize_calls import hopeless_call

        blame = None if self._reported_hopeless else hopeless_call(state)
        if blame is None:
            return []
        self._reported_hopeless = True
        return [str(blame)]


def _action(run: RankRun, awaited: bool) -> str:
    """What a rank that exited with 0 has done to the others, as a phrase to follow its name."""
    if run.membership.joining_at is None:
        return _NEVER_CAME if awaited else ""
    if run.membership.joined_at is not None and run.membership.leaving_at is None:
        from mcjax_launch.diagnosis.culprit import LEFT

        return LEFT
    return ""


def _waits(run: RankRun, state: RunState) -> bool:
    """Whether a rank is in initialize(), for all ranks of this job."""
    call = run.membership.call
    size = call.num_processes if call is not None else None
    return run.membership.is_joining and size == state.num_processes

"""Ranks that wait in vain, for a rank that is gone or for what cannot happen."""

from mcjax_launch.ranks import these_ranks
from mcjax_launch.run import stop_reasons
from mcjax_launch.run.rank_run import RankRun
from mcjax_launch.run.state import RunState
from mcjax_launch.run.stop_reasons import Stop

_NEVER_CAME = "exited with 0 without calling initialize(), where"
_OWN_ARGUMENTS = (
    "hint: leave the arguments out: jax.distributed.initialize() gets them from the launcher"
)
_GONE = (
    "hint: every rank has to call initialize(), or none: did this one take another branch, or did "
    "its shell hide a failure?"
)


class AbsentRanks:
    """Ends a job whose ranks all wait in vain, and remembers which ranks have been reported."""

    def __init__(self) -> None:
        self._reported: set[int] = set()
        self._reported_size = False

    def called(self, state: RunState, rank: int) -> Stop | None:
        """The reason to end the job, if a rank's call of initialize() can never return."""
        from mcjax_launch.diagnosis.initialize_calls import hopeless_call

        blame = None if state.ending else hopeless_call(state, state.ranks[rank])
        if blame is None:
            return None
        return stop_reasons.hopeless(blame.run.process_id, str(blame), [_OWN_ARGUMENTS])

    def gone(self, state: RunState) -> Stop | None:
        """The reason to end the job, if all that run wait in initialize() for one that is gone.

        Call it whenever a rank ends or begins to wait: either may come first.
        """
        if not state.initialize_calls or state.ending:
            return None
        gone = [run.process_id for run in state.ranks.values() if _never_came(run)]
        running = state.running
        if not gone or not running or not all(_waits(run, state) for run in running):
            return None
        waiting = these_ranks(run.process_id for run in running)
        verb = "wait" if len(running) > 1 else "waits"
        it = "it" if len(gone) == 1 else "them"
        message = f"{these_ranks(gone)} {_NEVER_CAME} {waiting} {verb} for {it}"
        return stop_reasons.hopeless(gone[0], message, [_GONE])

    def notes(self, state: RunState) -> list[str]:
        """Lines on what has not been reported yet, and does not end the job by itself."""
        if not state.initialize_calls or state.ending:
            return []
        lines = self._oversized(state)
        done = [run for run in state.ranks.values() if run.status == 0]
        running = state.running if done else []
        awaited = any(_waits(run, state) for run in running)
        for run in done if running else ():
            action = _action(run, awaited)
            if action and run.process_id not in self._reported:
                self._reported.add(run.process_id)
                lines.append(f"rank {run.process_id} {action}")
        return lines

    def _oversized(self, state: RunState) -> list[str]:
        from mcjax_launch.diagnosis.initialize_calls import oversized_call

        blame = None if self._reported_size else oversized_call(state)
        if blame is None:
            return []
        self._reported_size = True
        return [f"{blame}, which waits for the rest of them (--start-timeout ends such a wait)"]


def _action(run: RankRun, awaited: bool) -> str:
    """What a rank that exited with 0 has done to the others, as a phrase to follow its name."""
    if _never_came(run):
        how = "others wait for it; the job ends when all of them do"
        return f"{_NEVER_CAME} {how}" if awaited else ""
    if run.membership.joined_at is not None and run.membership.leaving_at is None:
        from mcjax_launch.diagnosis.culprit import LEFT

        return LEFT
    return ""


def _never_came(run: RankRun) -> bool:
    return run.status == 0 and run.membership.joining_at is None


def _waits(run: RankRun, state: RunState) -> bool:
    """Whether a rank is in initialize(), for all ranks of this job."""
    call = run.membership.call
    size = call.num_processes if call is not None else None
    return run.membership.is_joining and size == state.num_processes

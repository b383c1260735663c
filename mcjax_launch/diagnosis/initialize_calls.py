"""Ranks that called initialize() with arguments that cannot work; pure."""

from collections import Counter

from mcjax_launch.diagnosis.blame import Blame
from mcjax_launch.protocol.hook_messages import Joining
from mcjax_launch.run.rank_run import RankRun
from mcjax_launch.run.state import RunState

_Calls = list[tuple[RankRun, Joining]]


def wrong_call(state: RunState) -> Blame | None:
    """A rank whose arguments are impossible, or differ from the others'."""
    calls = _calls(list(state.ranks.values()))
    return (
        _same_process_id(calls)
        or _differs(calls, "coordinator_address")
        or _differs(calls, "num_processes")
        or _other_size(calls, state.num_processes)
    )


def hopeless_call(state: RunState) -> Blame | None:
    """A rank that waits in initialize() for what can never happen."""
    seen: dict[tuple[str, int | None], tuple[RankRun, Joining]] = {}
    for run, call in _calls([run for run in state.running if run.membership.is_joining]):
        if call.num_processes is not None and call.num_processes > state.num_processes:
            size = f"num_processes={call.num_processes}, but the job has {state.num_processes}"
            return _blame(run, call, size)
        other = seen.setdefault((call.coordinator_address, call.process_id), (run, call))
        if other[0] is not run:
            return _same_as(other, (run, call))
    return None


def _same_as(first: tuple[RankRun, Joining], second: tuple[RankRun, Joining]) -> Blame:
    """Two calls with one process id: to blame is the rank whose own it is not."""
    (other, _), (run, call) = (first, second) if _not_its_own(*second) else (second, first)
    arguments = f"process_id={call.process_id}, the same as rank {other.process_id}"
    own = f"; its own is {run.process_id}" if _not_its_own(run, call) else ""
    return _blame(run, call, arguments + own)


def _not_its_own(run: RankRun, call: Joining) -> bool:
    return call.process_id != run.process_id


def _calls(runs: list[RankRun]) -> _Calls:
    return [(run, call) for run in runs if (call := run.membership.call) is not None]


def _same_process_id(calls: _Calls) -> Blame | None:
    counts = Counter(call.process_id for _, call in calls)
    for run, call in calls:
        if counts[call.process_id] > 1 and call.process_id != run.process_id:
            own = f"its own is {run.process_id}"
            return _blame(
                run, call, f"process_id={call.process_id}, which is another rank's; {own}"
            )
    return None


def _differs(calls: _Calls, argument: str) -> Blame | None:
    values = [getattr(call, argument) for _, call in calls]
    for (run, call), value in zip(calls, values, strict=True):
        usual = Counter(values).most_common(1)[0][0]
        if value != usual:
            return _blame(run, call, f"{argument}={value}, where the others have {usual}")
    return None


def _other_size(calls: _Calls, num_processes: int) -> Blame | None:
    """All agree on a number of processes that this job does not have."""
    for run, call in calls:
        if call.num_processes != num_processes:
            size = f"num_processes={call.num_processes}, like the others"
            return _blame(run, call, f"{size}, but the job has {num_processes}")
    return None


def _blame(run: RankRun, call: Joining, arguments: str) -> Blame:
    at = f" at {call.where}" if call.where else ""
    return Blame(run, f"called initialize(){at} with {arguments}")

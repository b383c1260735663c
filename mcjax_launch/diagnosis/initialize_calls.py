"""Ranks that called initialize() with what cannot work, alone or with the others; pure."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mcjax_launch.kernel.wire.address import is_loopback, split_text
from mcjax_launch.kernel.wire.hook_messages import Joining
from mcjax_launch.ranks import have, these_ranks
from mcjax_launch.run.place import Stage
from mcjax_launch.run.rank_run import RankRun
from mcjax_launch.run.state import RunState

_Calls = list[tuple[RankRun, Joining]]


class Blame(NamedTuple):
    """A rank to blame for what happens to the others.

    Args:
        run: the rank's.
        action: what it did, as a phrase to follow its name.

    """

    run: RankRun
    action: str

    def __str__(self) -> str:
        return f"rank {self.run.process_id} {self.action}"


def wrong_call(state: RunState) -> Blame | None:
    """A rank whose arguments are impossible, or differ from the others'."""
    calls = _calls(list(state.ranks.values()))
    return (
        _same_process_id(calls)
        or _differs(calls, "coordinator_address")
        or _differs(calls, "num_processes")
        or _other_size(calls, state.num_processes)
    )


class Callers:
    """The ranks that wait in initialize(), by their arguments: each call costs one look.

    Of those that wait with the same arguments the latest stands for all.
    """

    def __init__(self) -> None:
        # By the coordinator's address, and its host where that is a loopback address.
        self._by_process_id: dict[tuple[str, str, int], RankRun] = {}
        self._by_size: dict[tuple[str, str], dict[int, RankRun]] = {}

    def hopeless(self, state: RunState, run: RankRun) -> Blame | None:
        """A rank whose call of initialize() can never return, nor can those of the others.

        Args:
            state: of the run.
            run: the rank that has called it last; to be given once for each call.

        """
        call = run.membership.call
        if call is None or not run.membership.is_joining:
            return None
        if arguments := _hopeless_alone(call, state):
            return _blame(run, call, arguments)
        address = call.coordinator_address
        place = address, run.host if _is_local(call) else ""
        return self._same(place, run, call) or self._other_size(place, run, call, state)

    def _same(self, place: tuple[str, str], run: RankRun, call: Joining) -> Blame | None:
        if call.process_id is None or call.num_processes == 1:
            return None
        key = *place, call.process_id
        other, self._by_process_id[key] = self._by_process_id.get(key), run
        its = _awaited_call(other, run)
        return _same_as((other, its), (run, call)) if other and its else None

    def _other_size(
        self, place: tuple[str, str], run: RankRun, call: Joining, state: RunState
    ) -> Blame | None:
        if call.num_processes is None:
            return None
        sizes = self._by_size.setdefault(place, {})
        others = [other for count, other in sizes.items() if count != call.num_processes]
        sizes[call.num_processes] = run
        for other in others:
            if (its := _awaited_call(other, run)) is not None:
                size = state.num_processes
                odd = (run, call) if call.num_processes != size else (other, its)
                return _blame(*odd, _other_than(size, odd[1]))
        return None


def _awaited_call(other: RankRun | None, run: RankRun) -> Joining | None:
    """The call of another rank that is still in initialize()."""
    if other is None or other is run or other.place.stage is not Stage.JOINING:
        return None
    return other.membership.call


def _hopeless_alone(call: Joining, state: RunState) -> str:
    """The arguments with which a call cannot return, whatever others call; "" if it may."""
    size, process_id = call.num_processes, call.process_id
    if size is None:
        return ""
    outside = process_id is not None and not 0 <= process_id < size
    # At an address of the program's own, processes may take part that are not this launcher's.
    ours = _is_local(call) or call.coordinator_address == state.coordinator
    if size != state.num_processes and (outside or (size > state.num_processes and ours)):
        also = f"process_id={process_id} and " if outside else ""
        return also + _other_than(state.num_processes, call)
    return f"process_id={process_id}, which is not one of 0 to {size - 1}" if outside else ""


def oversized_call(state: RunState, run: RankRun) -> Blame | None:
    """A rank that waits in initialize() for more processes than this job has, if it does."""
    call = run.membership.call
    size = call.num_processes if call is not None and run.membership.is_joining else None
    if call is None or size is None or size <= state.num_processes:
        return None
    return _blame(run, call, _other_than(state.num_processes, call))


def _is_local(call: Joining) -> bool:
    return is_loopback(split_text(call.coordinator_address)[0])


def _other_than(size: int, call: Joining) -> str:
    return f"num_processes={call.num_processes}, but the job has {size}"


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
    seen: dict[int | None, tuple[RankRun, Joining]] = {}
    for one in calls:
        other = seen.setdefault(one[1].process_id, one)
        if other is not one and one[1].process_id is not None:
            return _same_as(other, one)
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
            return _blame(run, call, _other_than(num_processes, call))
    return None


def _blame(run: RankRun, call: Joining, arguments: str) -> Blame:
    at = f" at {call.where}" if call.where else ""
    return Blame(run, f"called initialize(){at} with {arguments}")


# --- calls that are right by themselves ---


def kept_apart(state: RunState) -> Blame | None:
    """A rank that cannot take part with the others, or that these cannot find."""
    return other_version(state) or elsewhere(state)


def other_version(state: RunState) -> Blame | None:
    """A rank whose jax or jaxlib is not that of most ranks."""
    runs = [run for run in state.ranks.values() if run.membership.call is not None]
    return _other_package(runs, "jax") or _other_package(runs, "jaxlib")


def _other_package(runs: Sequence[RankRun], package: str) -> Blame | None:
    groups: dict[str, list[RankRun]] = {}
    for run in runs:
        if version := getattr(run.membership.call, package):
            groups.setdefault(version, []).append(run)
    if len(groups) < 2:
        return None
    # Of two that are as many, the one that rank 0 is in is the usual.
    usual = max(groups, key=lambda version: (len(groups[version]), -groups[version][0].process_id))
    odd = next(version for version in groups if version != usual)
    others = [run.process_id for run in groups[odd][1:]]
    also = f" (as {have(others)} {these_ranks(others)})" if others else ""
    rest = [run.process_id for run in groups[usual]]
    versions = f"has {package} {odd}{also}, {these_ranks(rest)} {have(rest)} {usual}"
    return Blame(groups[odd][0], f"{versions}: all processes of a job need the same")


def without_partition(state: RunState) -> Blame | None:
    """A rank that gives no partition index although another does: JAX wants all or none."""
    calls = [(run, run.membership.call) for run in state.ranks.values()]
    missing = [run for run, call in calls if call is not None and call.partition is None]
    given = [run.process_id for run, call in calls if call and call.partition is not None]
    if not given or not missing:
        return None
    others = [run.process_id for run in missing[1:]]
    nor = f", nor {have(others)} {these_ranks(others)}" if others else ""
    return Blame(
        missing[0],
        f"has no partition index{nor}, {these_ranks(given)} {have(given)}: JAX wants it of all "
        "processes or of none (JAX_PARTITION_INDEX, or partition_index= of initialize())",
    )


def elsewhere(state: RunState) -> Blame | None:
    """A process 0 that gives an address for the coordinator at which it cannot listen."""
    for run in state.ranks.values():
        call = run.membership.call
        if call is not None and call.elsewhere:
            return Blame(run, _elsewhere(call))
    return None


def _elsewhere(call: Joining) -> str:
    at = f" at {call.where}" if call.where else ""
    address = f"coordinator_address={call.coordinator_address}"
    return f"called initialize(){at} with {address}, which is not an address of its machine"

"""Ranks that called initialize() with what cannot work, or use devices of another kind; pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from mcjax_launch.jax_messages.known_errors import KnownError, known_error
from mcjax_launch.kernel.wire.address import is_loopback, split_text
from mcjax_launch.kernel.wire.hook_messages import (
    GPU_PLATFORMS,
    Backend,
    CalledBelow,
    Joining,
    NotJoined,
)
from mcjax_launch.ranks import all_ranks, grouped, have, these_ranks
from mcjax_launch.runs.rank_run import RankRun, Stage
from mcjax_launch.runs.state import RunState

# --- other devices than the rest ---

_MOST_HOSTS = 3
_CPU = "cpu"
_GPUS = ("gpu", *GPU_PLATFORMS)
_SEES_NONE = "do they see any (nvidia-smi, CUDA_VISIBLE_DEVICES, the plugin of their jax)?"


def unlike_others(state: RunState) -> str:
    """A line on ranks whose devices are not like those of the others; "" if all are alike.

    Whoever has not started a backend yet is left out.

    Args:
        state: of the run.

    """
    backends = {
        rank: run.membership.backend
        for rank, run in state.ranks.items()
        if run.membership.joined_at is not None and run.membership.backend is not None
    }
    on_cpu = [rank for rank, backend in backends.items() if backend.platform == _CPU]
    others = backends.keys() - set(on_cpu)
    if on_cpu and others:
        return _on_cpu(state, backends, on_cpu, others)
    if len(backends) < len(state.ranks):
        return ""
    return (_fell_back(backends) if on_cpu else "") or _other_counts(state, backends)


def _on_cpu(
    state: RunState,
    backends: Mapping[int, Backend],
    on_cpu: Collection[int],
    others: Collection[int],
) -> str:
    use = "use" if len(on_cpu) > 1 else "uses"
    rest = _rest(state, on_cpu, others)
    devices = "/".join(sorted({_named(backends[rank].platform) + "s" for rank in others}))
    why = next((backends[rank].why for rank in on_cpu if backends[rank].why), _SEES_NONE)
    return f"{placed(state, on_cpu)} {use} the CPU, {rest} {devices}: {why}"


def _fell_back(backends: Mapping[int, Backend]) -> str:
    """All use the CPU; that is worth a line where some have a GPU."""
    why = next((backend.why for backend in backends.values() if backend.why), "")
    if not why:
        return ""
    who = "all ranks use" if len(backends) > 1 else "the rank uses"
    return f"{who} the CPU, although there are GPUs: {why} (-x JAX_PLATFORMS=cpu if that is wanted)"


def _other_counts(state: RunState, backends: Mapping[int, Backend]) -> str:
    """Ranks that have fewer or more devices than most."""
    counts = {rank: backend.devices for rank, backend in backends.items()}
    if 0 in counts.values() or len(set(counts.values())) < 2:
        return ""
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = next(count for count in counts.values() if count != usual)
    ranks = [rank for rank, count in counts.items() if count == odd]
    like = [rank for rank, count in counts.items() if count == usual]
    name = _named(backends[ranks[0]].platform)
    has = "have" if len(ranks) > 1 else "has"
    some = f"{odd} local {name}" + ("s" if odd > 1 else "")
    return f"{placed(state, ranks)} {has} {some}, {_rest(state, ranks, like)} {usual}"


def _rest(state: RunState, ranks: Collection[int], others: Collection[int]) -> str:
    all_known = len(ranks) + len(others) == len(state.ranks) and len(others) > 1
    return "the others" if all_known else these_ranks(others)


def placed(state: RunState, ranks: Collection[int]) -> str:
    """Ranks, with their hosts if the job has several and these are few."""
    hosts = sorted({state.ranks[rank].host for rank in ranks})
    few = state.hosts > 1 and len(hosts) <= _MOST_HOSTS
    return these_ranks(ranks) + (f" on {', '.join(hosts)}" if few else "")


def _named(platform: str) -> str:
    return "GPU" if platform in _GPUS else "CPU device" if platform == _CPU else platform.upper()


# --- calls of initialize() that raise an exception ---

_MOST_SUMMARY = 110


def lone_ranks(state: RunState) -> str:
    """Return a line on ranks that go on alone because initialize() failed; "" if there are none."""
    alone = [run for run in state.ranks.values() if run.was_alone]
    if not alone or state.num_processes < 2:
        return ""
    first, count = alone[0].membership, len(alone)
    if count == state.num_processes:
        what, whose = f"these are {count} separate single-process jobs", all_ranks(count)
    else:
        jobs = "is a single-process job" if count == 1 else "are single-process jobs"
        ranks = these_ranks(run.process_id for run in alone)
        what, whose = f"{ranks} {jobs}, separate from the others", "it" if count == 1 else "them"
    assert first.refused is not None
    at = f" at {first.call.where}" if first.call is not None and first.call.where else ""
    return f"{what}: initialize(){at} failed in {whose} {why_failed(first.refused)}"


def single_process_jobs(state: RunState) -> str:
    """Return a line on ranks that each called initialize() for one process; "" if not all did."""
    calls = [run.membership.call for run in state.ranks.values()]
    if state.num_processes < 2 or not all(call and call.num_processes == 1 for call in calls):
        return ""
    first = _call(next(iter(state.ranks.values())))
    at = f" at {first.where}" if first.where else ""
    return (
        f"these ran as {len(calls)} separate single-process jobs: each rank called "
        f"initialize(){at} with num_processes=1"
    )


def why_failed(refused: NotJoined) -> str:
    """Return why a call of initialize() failed, to follow "failed", and what to do about it."""
    too_late = known_error(refused.summary) is KnownError.INITIALIZED_TOO_LATE
    if too_late and refused.backend_at:
        at = refused.backend_at
        return f"because {at} had already started a backend: call initialize() before that line"
    said = f"with {refused.exception}: {refused.summary}"
    return said if len(said) <= _MOST_SUMMARY else said[:_MOST_SUMMARY] + "..."


def how_absent(run: RankRun) -> str:
    """Return how a rank that exited with 0 has not joined, in words."""
    if run.membership.refused is not None:
        return "after its call of initialize() had failed"
    return "without calling initialize()"


# --- calls of initialize() in processes below ranks ---

_GUARD = 'put the call under `if __name__ == "__main__":`'


def calls_below(state: RunState) -> dict[CalledBelow, list[int]]:
    """Return the calls of initialize() by processes that ranks have started, with these ranks."""
    runs = state.ranks.items()
    return grouped((call, rank) for rank, run in runs for call in run.membership.called_below)


def call_below_line(call: CalledBelow, ranks: Collection[int]) -> str:
    """Return what to say of such a call, which these ranks have in common, and what to do."""
    several = len(ranks) > 1
    processes, these = ("processes", "they are") if several else ("a process", "it is")
    at = f" at {call.where}" if call.where else ""
    cure = _GUARD if call.by_import else "call it in the rank's own process alone"
    return (
        f"{these_ranks(ranks)} started {processes} that called initialize() again{at}; {these} no "
        f"rank{'s' * several}, so the call was left out: {cure}"
    )


# --- calls of initialize() ---


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
    runs = [run for run in state.ranks.values() if run.membership.call is not None]
    return (
        _same_process_id(runs)
        or _differs(runs, "coordinator_address")
        or _differs(runs, "num_processes")
        or next((_of_other_size(run, state) for run in runs if _is_other_size(run, state)), None)
    )


class Callers:
    """The ranks that wait in initialize(), by their arguments: each call costs one look.

    Of those that wait with the same arguments the latest stands for all.
    """

    def __init__(self) -> None:
        # By the coordinator's address, and its host where that is a loopback address.
        self._by_process_id: dict[tuple[str, str, int], RankRun] = {}
        self._by_size: dict[tuple[str, str], dict[int, RankRun]] = {}
        self._singles: dict[tuple[str, str], RankRun] = {}  # for one process each

    def hopeless(self, state: RunState, run: RankRun) -> Blame | None:
        """A rank whose call of initialize() can never return, nor can those of the others.

        Args:
            state: of the run.
            run: the rank that has called it last; to be given once for each call.

        """
        if run.membership.call is None or not run.membership.is_joining:
            return None
        if blame := _hopeless_alone(run, state):
            return blame
        address = _call(run).coordinator_address
        place = address, run.host if _is_local(run) else ""
        return self._same(place, run, state) or self._other_size(place, run, state)

    def _single(self, run: RankRun, state: RunState) -> Blame | None:
        """A rank for itself that takes the port of another such rank: JAX aborts one of them."""
        at = run.host, _call(run).coordinator_address
        other = self._singles.setdefault(at, run)
        member = other.membership
        if other is run or other.status is not None or member.left or member.refused is not None:
            self._singles[at] = run
            return None
        return _of_other_size(run, state)

    def _same(self, place: tuple[str, str], run: RankRun, state: RunState) -> Blame | None:
        process, size = _call(run).process_id, _call(run).num_processes
        if process is None:
            return None
        if size == 1:
            return self._single(run, state)
        other = self._by_process_id.get((*place, process))
        self._by_process_id[*place, process] = run
        return _same_as(other, run) if other is not None and _is_awaited(other, run) else None

    def _other_size(self, place: tuple[str, str], run: RankRun, state: RunState) -> Blame | None:
        size = _call(run).num_processes
        if size is None:
            return None
        sizes = self._by_size.setdefault(place, {})
        others = [other for count, other in sizes.items() if count != size]
        sizes[size] = run
        for other in others:
            if _is_awaited(other, run):
                return _of_other_size(run if _is_other_size(run, state) else other, state)
        return None


def oversized_call(state: RunState, run: RankRun) -> Blame | None:
    """A rank that waits in initialize() for more processes than this job has, if it does."""
    call = run.membership.call if run.membership.is_joining else None
    is_oversized = call is not None and (call.num_processes or 0) > state.num_processes
    return _of_other_size(run, state) if is_oversized else None


def _call(run: RankRun) -> Joining:
    assert run.membership.call is not None
    return run.membership.call


def _is_awaited(other: RankRun, run: RankRun) -> bool:
    """Whether this is another rank, and still in initialize()."""
    return other is not run and other.place.stage is Stage.JOINING


def _hopeless_alone(run: RankRun, state: RunState) -> Blame | None:
    """A rank whose call cannot return whatever others call."""
    call = _call(run)
    size, process = call.num_processes, call.process_id
    if size is None:
        return None
    outside = process is not None and not 0 <= process < size
    # At an address of the program's own, processes may take part that are not this launcher's.
    ours = _is_local(run) or call.coordinator_address == state.coordinator
    if size != state.num_processes and (outside or (size > state.num_processes and ours)):
        return _of_other_size(run, state, f"process_id={process} and " if outside else "")
    if outside:
        return _blame(run, f"process_id={process}, which is not one of 0 to {size - 1}")
    return None


def _is_local(run: RankRun) -> bool:
    return is_loopback(split_text(_call(run).coordinator_address)[0])


def _is_other_size(run: RankRun, state: RunState) -> bool:
    return _call(run).num_processes != state.num_processes


def _of_other_size(run: RankRun, state: RunState, also: str = "") -> Blame:
    size = _call(run).num_processes
    return _blame(run, f"{also}num_processes={size}, but the job has {state.num_processes}")


def _same_process_id(runs: Sequence[RankRun]) -> Blame | None:
    seen: dict[int, RankRun] = {}
    for run in runs:
        process = _call(run).process_id
        if process is not None and (other := seen.setdefault(process, run)) is not run:
            return _same_as(other, run)
    return None


def _same_as(first: RankRun, second: RankRun) -> Blame:
    """Two calls with one process id: to blame is the rank whose own it is not."""
    other, run = (
        (second, first) if _call(second).process_id == second.process_id else (first, second)
    )
    process = _call(run).process_id
    own = f"; its own is {run.process_id}" if process != run.process_id else ""
    return _blame(run, f"process_id={process}, the same as rank {other.process_id}{own}")


def _differs(runs: Sequence[RankRun], argument: str) -> Blame | None:
    values = [getattr(_call(run), argument) for run in runs]
    usual = Counter(values).most_common(1)[0][0] if values else None
    for run, value in zip(runs, values, strict=True):
        if value != usual:
            return _blame(run, f"{argument}={value}, where the others have {usual}")
    return None


def _blame(run: RankRun, arguments: str) -> Blame:
    where = _call(run).where
    return Blame(run, f"called initialize(){f' at {where}' if where else ''} with {arguments}")


# --- calls that are right by themselves ---


def kept_apart(state: RunState) -> Blame | None:
    """A rank that cannot take part with the others, or that these cannot find."""
    return other_version(state) or elsewhere(state)


def other_version(state: RunState) -> Blame | None:
    """A rank whose jax or jaxlib is not that of most ranks."""
    runs = [run for run in state.ranks.values() if run.membership.call is not None]
    return _other_package(runs, "jax") or _other_package(runs, "jaxlib")


def _other_package(runs: Sequence[RankRun], package: str) -> Blame | None:
    versions = ((getattr(run.membership.call, package), run) for run in runs)
    groups = grouped((f"{package} {version}", run) for version, run in versions if version)
    return _odd(groups, lambda has, other: (has, other.partition(" ")[2]))


def _odd(
    groups: Mapping[str, Sequence[RankRun]], words: Callable[[str, str], tuple[str, str]]
) -> Blame | None:
    """A rank that has something else than most; None if all have the same.

    Args:
        groups: the ranks by what they have.
        words: what it and the others have, in words, of two that differ.

    """
    if len(groups) < 2:
        return None
    # Of two that are as many, the one that rank 0 is in is the usual.
    usual = max(groups, key=lambda value: (len(groups[value]), -groups[value][0].process_id))
    odd = next(value for value in groups if value != usual)
    others = [run.process_id for run in groups[odd][1:]]
    also = f" (as {have(others)} {these_ranks(others)})" if others else ""
    rest = [run.process_id for run in groups[usual]]
    own, theirs = words(odd, usual)
    has = f"has {own}{also}, {these_ranks(rest)} {have(rest)} {theirs}"
    return Blame(groups[odd][0], f"{has}: all processes of a job need the same")


def other_setting(state: RunState) -> Blame | None:
    """A rank with another JAX_PLATFORMS, JAX_ENABLE_X64 or XLA_FLAGS than most have."""
    calls = [(run, run.membership.call) for run in state.ranks.values()]
    known = [
        (run, call.settings)
        for run, call in calls
        if call is not None and call.settings is not None
    ]
    for name in sorted({name for _, settings in known for name in settings}):
        in_order = sorted(known, key=lambda one: one[0].process_id)
        groups = grouped((settings.get(name, ""), run) for run, settings in in_order)
        if (blame := _odd(groups, partial(_settings, name))) is not None:
            return blame
    return None


def _settings(name: str, own: str, theirs: str) -> tuple[str, str]:
    """Two values of a setting, in words: of flags those that differ."""
    common = {*own.split()} & {*theirs.split()}
    first, second = (
        " ".join(word for word in value.split() if word not in common) for value in (own, theirs)
    )
    return (f"{name}={first}", second or "none") if first else (f"no {name}", f"{name}={second}")


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

"""What keeps ranks apart although each of their calls of initialize() is right by itself; pure."""

from collections.abc import Sequence

from mcjax_launch.diagnosis.blame import Blame
from mcjax_launch.kernel.wire.hook_messages import Joining
from mcjax_launch.ranks import have, these_ranks
from mcjax_launch.run.rank_run import RankRun
from mcjax_launch.run.state import RunState


def kept_apart(state: RunState) -> Blame | None:
    """A rank that cannot take part with the others, or that these cannot find."""
    return other_version(state) or elsewhere(state)


def other_version(state: RunState) -> Blame | None:
    """A rank whose jax or jaxlib is not that of most ranks."""
    runs = [run for run in state.ranks.values() if run.membership.call is not None]
    return _differs(runs, "jax") or _differs(runs, "jaxlib")


def _differs(runs: Sequence[RankRun], package: str) -> Blame | None:
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

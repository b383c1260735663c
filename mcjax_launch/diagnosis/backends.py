"""Ranks that use other devices than the rest of the job does; pure."""

from collections import Counter
from collections.abc import Collection, Mapping

from mcjax_launch.kernel.wire.hook_messages import Backend
from mcjax_launch.ranks import these_ranks
from mcjax_launch.runs.state import RunState

_MOST_HOSTS = 3
_CPU = "cpu"
_GPUS = ("gpu", "cuda", "rocm")
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

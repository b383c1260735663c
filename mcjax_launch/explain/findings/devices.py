"""Rules on ranks whose devices differ from the others', or do not start in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from mcjax_launch.explain.jax_messages import lost_peer
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.ranks import format_ranks, inflect_have
from mcjax_launch.wire.hook_messages import GPU_PLATFORMS, Backend

_CPU = "cpu"
_GPUS = ("gpu", *GPU_PLATFORMS)
_SEES_NONE = "do they see any (nvidia-smi, CUDA_VISIBLE_DEVICES, the plugin of their jax)?"
# At most this many process numbers are shown.
_MOST_NUMBERS = 8


def unlike_others(view: View) -> Iterator[Finding]:
    """Find ranks whose devices differ in platform or number, or that fell back to the CPU.

    Only ranks that have joined and have a backend are compared. Numbers are compared, and a job
    whose ranks all use the CPU although there are GPUs is found, only when all ranks have a
    backend. The finding then has another key than before.
    """
    backends = {
        run.process_id: run.membership.backend
        for run in view.runs
        if run.membership.joined_at is not None and run.membership.backend is not None
    }
    on_cpu = [rank for rank, backend in backends.items() if backend.platform == _CPU]
    others = backends.keys() - set(on_cpu)
    are_all = len(backends) == len(view.runs)
    words = ""
    if on_cpu and others:
        words = _describe_cpu_ranks(view, backends, on_cpu, others)
    elif are_all:
        words = (_describe_cpu_fallback(backends) if on_cpu else "") or _describe_unusual_counts(
            view, backends
        )
    if words:
        yield Finding(("devices", are_all), words)


def _describe_cpu_ranks(
    view: View, backends: Mapping[int, Backend], on_cpu: Collection[int], others: Collection[int]
) -> str:
    use = "use" if len(on_cpu) > 1 else "uses"
    rest = _format_other_ranks(view, on_cpu, others)
    devices = "/".join(
        sorted({format_device_name(backends[rank].platform) + "s" for rank in others})
    )
    why = next((backends[rank].why for rank in on_cpu if backends[rank].why), _SEES_NONE)
    return f"{view.format_ranks(on_cpu)} {use} the CPU, {rest} {devices}: {why}"


def _describe_cpu_fallback(backends: Mapping[int, Backend]) -> str:
    """Return a line on ranks that use the CPU although there are GPUs; "" if there are none."""
    why = next((backend.why for backend in backends.values() if backend.why), "")
    if not why:
        return ""
    who = "all ranks use" if len(backends) > 1 else "the rank uses"
    wanted = "(or -x JAX_PLATFORMS=cpu if you want the CPU)"
    return f"{who} the CPU, although this machine has GPUs: {why} {wanted}"


def _describe_unusual_counts(view: View, backends: Mapping[int, Backend]) -> str:
    """Return a line on ranks whose number of devices is unusual; "" if another finding says it."""
    counts = {rank: backend.devices for rank, backend in backends.items()}
    if 0 in counts.values() or len(set(counts.values())) < 2:
        return ""
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = next(count for count in counts.values() if count != usual)
    ranks = [rank for rank, count in counts.items() if count == odd]
    like = [rank for rank, count in counts.items() if count == usual]
    name = format_device_name(backends[ranks[0]].platform)
    asked = [view.state.ranks[rank].share.asked for rank in ranks]
    if any(devices is not None and devices.kind == name for devices in asked):
        return ""  # `requested.other_count` says more
    some = f"{odd} local {name}" + ("s" if odd > 1 else "")
    others = _format_other_ranks(view, ranks, like)
    return f"{view.format_ranks(ranks)} {inflect_have(ranks)} {some}, {others} {usual}"


def _format_other_ranks(view: View, ranks: Collection[int], others: Collection[int]) -> str:
    all_known = len(ranks) + len(others) == len(view.runs) and len(others) > 1
    return "the others" if all_known else format_ranks(others)


def format_device_name(platform: str) -> str:
    """Return the noun for a device of a platform: "GPU", "CPU device", or such as "TPU"."""
    return "GPU" if platform in _GPUS else "CPU device" if platform == _CPU else platform.upper()


def shared_gpus(view: View) -> Iterator[Finding]:
    """Find hosts whose ranks use the same GPUs."""
    hosts: set[str] = set()
    for run in view.runs:
        backend, line = run.membership.backend, run.share.shared_gpus
        platform = backend.platform if backend is not None else run.compilations.platform
        if line and platform not in ("", _CPU) and run.host not in hosts:
            hosts.add(run.host)
            yield Finding(("shared", run.host), f"host {run.host}: {line}")


def other_numbers(view: View) -> Iterator[Finding]:
    """Find that jax.process_index() differs from the ranks' numbers; needs all numbers."""
    latest = max(view.runs, key=lambda run: run.membership.turn)
    known = view.state.get_processes(latest).find_renumbered_ranks(view.state.ranks)
    if not known:
        return
    pairs = [f"{process} is rank {known[process]}" for process in sorted(known)]
    more = ", ..." if len(pairs) > _MOST_NUMBERS else ""
    shown = ", ".join(pairs[:_MOST_NUMBERS])
    yield Finding("numbers", f"jax.process_index() is not the rank here: {shown}{more}")


def without_devices(view: View) -> Iterator[Finding]:
    """Find ranks that kept other ranks waiting for their devices, or for a shared compilation."""
    key = lost_peer.find_missing_key(view.failed_text)
    late = [run for process in key.late if (run := view.state.find_rank(process))] if key else []
    if key is None or not late:
        return
    first, ranks = late[0], tuple(run.process_id for run in late)
    backend = first.membership.backend
    where = f"; it was {first.late_position}" if first.late_position else ""
    if not key.platform:
        did = "did not reach a compilation that it shares with the others"
        words = view.format_statement(ranks, did) + where
    elif backend is not None and backend.platform == _CPU:
        why = f" ({backend.why})" if backend.why else ""
        uses = f"uses the CPU{why}: the others waited for its {key.platform} devices"
        words = f"{view.format_ranks(ranks[:1])} {uses}"
    else:
        did = f"did not start a backend for {key.platform} in time"
        words = view.format_statement(ranks, did) + where
    yield Finding("without devices", words, ranks)

"""A rule on the memory of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.ranks import group_by_key
from mcjax_launch.wire.messages import GpuUse
from mcjax_launch.wire.timers import scale_time

# A rank that has not ended this many seconds after it has found no memory tries again. If it ends,
# the summary says the same.
_RETRIES_S = scale_time(2.0)
# At most this many holders of a GPU's memory are named.
_MOST_HOLDERS = 4


def memory_taken(view: View) -> Iterator[Finding]:
    """Find who holds the memory of a GPU on which a rank has found none."""
    known = [
        ((run.host, gpu.number), (run.process_id, used.exhausted_at, gpu))
        for run in view.runs
        if (used := run.usage.gpus).exhausted_at is not None and (gpu := used.fullest) is not None
    ]
    for (host, number), found in group_by_key(known).items():
        ranks, times, gpus = zip(*found, strict=True)
        holders = _describe_holders(view, host, gpus[0])
        words = f"{view.format_ranks(ranks)} found no memory: {holders}"
        yield Finding(("GPU memory", host, number), words, ranks, due=min(times) + _RETRIES_S)


def _describe_holders(view: View, host: str, gpu: GpuUse) -> str:
    """Describe who holds a GPU's memory: the ranks, and processes of no rank."""
    held = {
        run.process_id: mine.mib
        for run in view.runs
        if run.host == host
        for other, mine in run.usage.gpus.latest
        if other.number == gpu.number and mine.mib is not None
    }
    largest = sorted(held, key=lambda rank: -held[rank])
    parts = [f"rank {rank} {held[rank] / 1024:.1f} GiB" for rank in largest[:_MOST_HOLDERS]]
    if rest := largest[_MOST_HOLDERS:]:
        parts.append(f"{len(rest)} more {sum(held[rank] for rank in rest) / 1024:.1f} GiB")
    holders = ", ".join([*parts, *gpu.others[:_MOST_HOLDERS]])
    name = gpu.name.removeprefix("NVIDIA ")
    used = f"{gpu.used_mib / 1024:.1f} of {gpu.total_mib / 1024:.1f} GiB"
    return f"of GPU {gpu.number} ({name}) {used} are in use" + (f": {holders}" if holders else "")

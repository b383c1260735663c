"""Rules on what ranks do on their GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.gpu_use import GpuActivity
from mcjax_launch.journal.programs import format_title
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.wire.messages import GpuUse
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wording import format_rough_duration

# In this order they are described.
_KINDS = (GpuActivity.WAITS, GpuActivity.WORKS, GpuActivity.IDLE)

# A rank that has not ended this many seconds after it has found no memory tries again. If it ends,
# the summary says the same.
_RETRIES_S = scale_time(2.0)
# At most this many holders of a GPU's memory are named.
_MOST_HOLDERS = 4


def doing(view: View) -> Iterator[Finding]:
    """Find which ranks' GPUs wait in a collective, which work, and which are idle."""
    known = [
        (activity, run)
        for run in view.state.running
        if (activity := run.usage.gpus.activity) is not None
    ]
    groups = group_by_key(known)
    words = [
        _describe_group(
            kind, groups[kind], view.now, is_first=kind is min(groups, key=_KINDS.index)
        )
        for kind in _KINDS
        if kind in groups
    ]
    if words:
        late = groups.get(GpuActivity.IDLE, []) if GpuActivity.WAITS in groups else []
        key = "GPUs", *(f"{kind} {format_ranks(_list_ranks(groups[kind]))}" for kind in groups)
        yield Finding(key, "; ".join(words), tuple(_list_ranks(late)))


def some_work(view: View) -> Iterator[Finding]:
    """Find that GPUs of some ranks have waited in a collective while others have worked."""
    gpus = [run.usage.gpus for run in view.state.running]
    waiting, working = [each for each in gpus if each.waits], [each for each in gpus if each.works]
    if waiting and working:
        for finding in doing(view):
            yield finding.copy_with(since=max(each.since for each in (*waiting, *working)))


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


def _list_ranks(runs: Sequence[RankRun]) -> list[int]:
    return [run.process_id for run in runs]


def _describe_group(
    kind: GpuActivity, runs: Sequence[RankRun], now: float, *, is_first: bool
) -> str:
    """Describe what these ranks' GPUs do: "rank 3's GPU has been busy for 40 s in jit(step)"."""
    of_runs = [run.usage.gpus for run in runs]
    ranks, several = format_ranks(_list_ranks(runs)), sum(len(each.latest) for each in of_runs) > 1
    if len(runs) > 1:
        name = f"GPUs of {ranks}" if is_first else f"those of {ranks}"
    else:
        name = f"{ranks}'s" + (f" GPU{'s' if several else ''}" if is_first else "")
    if kind is GpuActivity.WAITS:
        return f"{name} {'wait' if several else 'waits'} in a collective"
    if kind is GpuActivity.IDLE:
        return f"{name} {'are' if several else 'is'} idle"
    for_long = format_rough_duration(now - max(each.since for each in of_runs))
    places = {_format_program(run) for run in runs}
    where = places.pop() if len(places) == 1 else ""
    return f"{name} {'have' if several else 'has'} been busy for {for_long}{where}"


def _format_program(run: RankRun) -> str:
    """Return the program that a rank has compiled last, as " (last compiled ...)"; "" if none."""
    latest = run.compilations.latest
    if latest is None:
        return ""
    return f" (last compiled {format_title(latest.name)} at {latest.where or 'an unknown line'})"

"""A rank's use of GPUs: memory, and whether its programs there work or only wait; pure.

A collective that waits is a program that spins: the GPU is busy all the time, but does not touch
its memory and takes hardly more power than an idle GPU with a program's context. Measured on an
H100 (limit 700 W): idle 117 W, spinning 119 to 128 W and 0 % memory; matrix products 568 to 628 W
and 9 %; elementwise work 191 to 384 W and 52 to 59 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from mcjax_launch.wire.value import Changing, Value, field

if TYPE_CHECKING:
    from mcjax_launch.wire.messages import GpuUse, RankOnGpu

# A program that only spins keeps a GPU busy for at least this percentage of the time.
_SPINS = 95.0
# Work takes more than this part of the power between that of an idle GPU and the limit. The power
# of an idle GPU, if unknown, is taken to be at most this part of the limit: on an H100 it is 0.17,
# on small cards 0.4.
_WORK_POWER, _IDLE_POWER = 0.1, 0.5
# So many reports of a GPU that idles are ignored at first: its power still rises.
_SETTLING = 3
_MOST_SAMPLES = 512


class GpuActivity(Enum):
    """Activity of a rank's programs on its GPUs."""

    IDLE = "idle"  # none runs
    WAITS = "waits"  # one runs, but only spins, as a collective does that waits for other ranks
    WORKS = "works"


class GpuSample(Value):
    """A sample of a rank's GPUs together at time `at`: memory, average use and power."""

    at: float
    mib: int
    busy: float | None
    power_w: float | None


def classify_activity(
    gpu: GpuUse, mine: RankOnGpu, idle_w: float | None, *, awaits_none: bool
) -> GpuActivity | None:
    """Return what a rank does on a GPU; None if that is unknown.

    Args:
        gpu: use of the GPU by all processes.
        mine: use of the GPU by the rank.
        idle_w: power of the GPU when it idles with a rank's context; None if unknown.
        awaits_none: True if there is no other process or GPU that the rank could wait for.

    """
    if mine.busy is None:
        return None
    if not mine.busy and not mine.memory_busy:
        return GpuActivity.IDLE
    if mine.memory_busy or awaits_none or _takes_power(gpu, idle_w):
        return GpuActivity.WORKS
    return GpuActivity.WAITS if mine.busy >= _SPINS else None


def _takes_power(gpu: GpuUse, idle_w: float | None) -> bool:
    if gpu.power_w is None or not gpu.limit_w:
        return False
    least_w = _IDLE_POWER * gpu.limit_w if idle_w is None else idle_w
    return gpu.power_w > least_w + _WORK_POWER * (gpu.limit_w - least_w)


def describe_gpus(uses: Sequence[tuple[GpuUse, RankOnGpu | None]]) -> str:
    """Describe GPUs: `2 x H100 80GB HBM3: 117.8 of 159.3 GiB, 98 %, 1224 W`.

    Args:
        uses: each GPU, with a rank's use of it; None for the memory that all processes use.

    """
    names = {gpu.name.removeprefix("NVIDIA ") for gpu, _ in uses}
    name = names.pop() if len(names) == 1 else "GPUs"
    held = sum(gpu.used_mib if mine is None or mine.mib is None else mine.mib for gpu, mine in uses)
    total = sum(gpu.total_mib for gpu, _ in uses)
    parts = [f"{held / 1024:.1f} of {total / 1024:.1f} GiB"]
    if busy := [gpu.busy for gpu, _ in uses if gpu.busy is not None]:
        parts.append(f"{sum(busy) / len(busy):.0f} %")
    if watts := [gpu.power_w for gpu, _ in uses if gpu.power_w is not None]:
        parts.append(f"{sum(watts):.0f} W")
    count = f"{len(uses)} x " if len(uses) > 1 else ""
    return f"{count}{name}: {', '.join(parts)}"


class RankGpus(Changing):
    """The GPUs that a rank uses. Times are in time.monotonic's seconds.

    Attributes:
        latest: each GPU that the rank uses, with the rank's own use, at the last report of any.
        activity: what the rank does on its GPUs; None if unknown.
        since: time since which it has done that.
        at: time of the last report.
        samples: samples of all its GPUs together, in order of time.
        peak_mib: highest memory of the rank on all its GPUs together.
        exhausted_at: time at which the rank first found no memory on a GPU; None if it never did.

    """

    latest: tuple[tuple[GpuUse, RankOnGpu], ...] = ()
    activity: GpuActivity | None = None
    since: float = 0.0
    at: float = 0.0
    samples: list[GpuSample] = field(default_factory=list)
    peak_mib: int = 0
    exhausted_at: float | None = None

    _idle_w: dict[int, float] = field(default_factory=dict)  # by the GPU's number
    _idled: dict[int, int] = field(default_factory=dict)  # reports of the GPU idling

    @property
    def works(self) -> bool:
        """True if a program of the rank works on a GPU."""
        return self.activity is GpuActivity.WORKS

    def record(
        self, uses: Iterable[tuple[GpuUse, RankOnGpu]], at: float, *, is_alone: bool
    ) -> None:
        """Record a report.

        Args:
            uses: each GPU that the rank uses, with the rank's use; none if that is unknown.
            at: time of the report.
            is_alone: True if the job has no other rank.

        """
        uses = tuple(uses)
        found = [
            classify_activity(
                gpu, mine, self._learn_idle_power(gpu), awaits_none=is_alone and len(uses) == 1
            )
            for gpu, mine in uses
        ]
        rank_by = (GpuActivity.WORKS, None, GpuActivity.WAITS, GpuActivity.IDLE)
        activity = min(found, key=rank_by.index, default=None)
        if activity is not self.activity:
            self.activity, self.since = activity, self.at or at
        self.at = at
        if uses:
            self.latest = uses
            self._add_sample(at)

    @property
    def fullest(self) -> GpuUse | None:
        """The GPU with the largest part of its memory in use; None if none is known."""
        gpus = [gpu for gpu, _ in self.latest]
        return max(gpus, key=lambda gpu: gpu.used_mib / max(gpu.total_mib, 1), default=None)

    def list_rows(self) -> list[dict[str, object]]:
        """Return the latest use of each GPU, for programs that read JSON."""
        return [
            {
                "number": gpu.number,
                "name": gpu.name,
                "rank_mib": mine.mib,
                "used_mib": gpu.used_mib,
                "limit_mib": gpu.total_mib,
                "busy_percent": None if gpu.busy is None else round(gpu.busy, 1),
                "power_w": gpu.power_w,
                "limit_w": gpu.limit_w,
            }
            for gpu, mine in self.latest
        ]

    def _learn_idle_power(self, gpu: GpuUse) -> float | None:
        """Return the lowest power at which a GPU has idled with a rank's context, once settled."""
        number = gpu.number
        if gpu.busy == 0 and gpu.power_w is not None:
            self._idled[number] = self._idled.get(number, 0) + 1
            if self._idled[number] > _SETTLING:
                self._idle_w[number] = min(self._idle_w.get(number, gpu.power_w), gpu.power_w)
        return self._idle_w.get(number)

    def _add_sample(self, at: float) -> None:
        mib = sum(mine.mib or 0 for _, mine in self.latest)
        busy = [gpu.busy for gpu, _ in self.latest if gpu.busy is not None]
        watts = [gpu.power_w for gpu, _ in self.latest if gpu.power_w is not None]
        self.peak_mib = max(self.peak_mib, mib)
        if len(self.samples) >= _MOST_SAMPLES:
            del self.samples[1::2]
        average = round(sum(busy) / len(busy)) if busy else None
        self.samples.append(GpuSample(at, mib, average, sum(watts) if watts else None))

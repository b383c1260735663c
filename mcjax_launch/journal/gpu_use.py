"""A rank's use of GPUs: its memory there, and how busy they are; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.wire.value import Changing, Value, field

if TYPE_CHECKING:
    from mcjax_launch.wire.messages import GpuUse, RankOnGpu

_MOST_SAMPLES = 512


class GpuSample(Value):
    """A sample of a rank's GPUs together at time `at`: memory, and average use."""

    at: float
    mib: int
    busy: float | None


def describe_gpus(uses: Sequence[tuple[GpuUse, RankOnGpu | None]]) -> str:
    """Describe GPUs: `2 x H100 80GB HBM3: 117.8 of 159.3 GiB, 98 %`.

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
    count = f"{len(uses)} x " if len(uses) > 1 else ""
    return f"{count}{name}: {', '.join(parts)}"


class RankGpus(Changing):
    """The GPUs that a rank uses. Times are in time.monotonic's seconds.

    Attributes:
        latest: each GPU that the rank uses, with the rank's own use, at the last report of any.
        samples: samples of all its GPUs together, in order of time.
        peak_mib: highest memory of the rank on all its GPUs together.
        exhausted_at: time at which the rank first found no memory on a GPU; None if it never did.

    """

    latest: tuple[tuple[GpuUse, RankOnGpu], ...] = ()
    samples: list[GpuSample] = field(default_factory=list)
    peak_mib: int = 0
    exhausted_at: float | None = None

    @property
    def is_busy(self) -> bool:
        """True if programs run on a GPU that the rank uses."""
        return any(gpu.busy for gpu, _ in self.latest)

    def record(self, uses: Iterable[tuple[GpuUse, RankOnGpu]], at: float) -> None:
        """Record the GPUs that a rank uses at a time, each with the rank's use of it."""
        self.latest = tuple(uses)
        mib = sum(mine.mib or 0 for _, mine in self.latest)
        busy = [gpu.busy for gpu, _ in self.latest if gpu.busy is not None]
        self.peak_mib = max(self.peak_mib, mib)
        if len(self.samples) >= _MOST_SAMPLES:
            del self.samples[1::2]
        self.samples.append(GpuSample(at, mib, round(sum(busy) / len(busy)) if busy else None))

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
                "busy_percent": gpu.busy,
            }
            for gpu, mine in self.latest
        ]

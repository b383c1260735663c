"""Part of the launcher that reports what ranks do on GPUs, and who holds the memory there."""

import time

from mcjax_launch.journal.facts import GpuMemoryKnown, GpusUsed, MemoryExhausted
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.time_limits import GPU_EVENTS_S
from mcjax_launch.wire.messages import RequestUsage, Usage

# Reports come a little earlier or later.
_EARLY = 0.9
# Seconds after a rank has found no memory at which hosts are asked who holds it: the first answer
# may lack the GPUs, and the rank may end soon.
_ASK_S = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)


class GpuReports(LauncherPart):
    """Part that passes on the reports of GPUs, a few of them."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._event_at: dict[int, float] = {}  # latest event, by rank
        self._asks: list[float] = []  # times at which to ask hosts for usage
        self._awaited: set[int] = set()  # ranks that have found no memory

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which to ask the hosts next; None for never."""
        return self._asks[0] if self._asks else None

    def expire(self, now: float) -> None:
        """Ask the hosts what ranks use, if it is time."""
        if self._asks and now >= self._asks[0]:
            self._asks = [at for at in self._asks if at > now]
            self.launcher.pool.send_all(RequestUsage())

    def on_exhaustion(self, rank: int) -> None:
        """Ask who holds the GPU's memory, at a rank's first message that it finds none."""
        if self.launcher.state.ranks[rank].usage.gpus.exhausted_at is None:
            self.launcher.journal.append(MemoryExhausted(rank))
            self._awaited.add(rank)
            now = time.monotonic()
            self._asks = [now + seconds for seconds in _ASK_S]
            self.expire(now)

    def on_usage(self, usage: Usage, now: float) -> None:
        """Report the GPUs of a host's ranks."""
        told = {mine.rank for gpu in usage.gpus for mine in gpu.ranks}
        if self._awaited & told:
            self._awaited -= told
            self._asks = self._asks if self._awaited else []
            self.launcher.parts.load_explanations()
            self.launcher.journal.append(GpuMemoryKnown())
        self._report_events(told, now)

    def _report_events(self, ranks: set[int], now: float) -> None:
        """Report what these ranks do on GPUs, if that is due."""
        for rank in sorted(ranks):
            before = self._event_at.get(rank)
            if before is None or now >= before + _EARLY * GPU_EVENTS_S:
                self._event_at[rank] = now
                self.launcher.journal.append(GpusUsed(rank))


PART = GpuReports

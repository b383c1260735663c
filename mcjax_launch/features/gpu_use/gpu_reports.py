"""Part of the launcher that reports what ranks do on GPUs, and who holds the memory there."""

from mcjax_launch.journal.facts import GpuMemoryKnown, GpusUsed, MemoryExhausted
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.time_limits import GPU_EVENTS_S
from mcjax_launch.wire.messages import RequestUsage, Usage

# Reports come a little earlier or later.
_EARLY = 0.9


class GpuReports(LauncherPart):
    """Part that passes on the reports of GPUs, a few of them."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._event_at: dict[int, float] = {}  # latest event, by rank
        self._awaited: set[int] = set()  # ranks that have found no memory

    def on_memory_exhausted(self, exhausted: MemoryExhausted, at: float) -> None:
        """Ask who holds the GPU's memory."""
        self._awaited.add(exhausted.rank)
        self.launcher.pool.send_all(RequestUsage())

    def on_usage(self, usage: Usage, now: float) -> None:
        """Report the GPUs of a host's ranks."""
        told = {mine.rank for gpu in usage.gpus for mine in gpu.ranks}
        if self._awaited & told:
            self._awaited -= told
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

"""Part of the launcher that reports what ranks do on GPUs: as events, and for --jobs."""

from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.time_limits import GPU_EVENTS_S
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.wire.messages import Usage

# Seconds between two writes of the file that --jobs reads.
_JOBS_S = 2.0
# Reports come a little earlier or later.
_EARLY = 0.9


class GpuReports(LauncherPart):
    """Part that passes on the reports of GPUs, a few of them."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._event_at: dict[int, float] = {}  # latest event, by rank
        self._written_at = 0.0

    def on_usage(self, usage: Usage, now: float) -> None:
        """Report the GPUs of a host's ranks."""
        for rank in sorted({mine.rank for gpu in usage.gpus for mine in gpu.ranks}):
            before = self._event_at.get(rank)
            if before is None or now >= before + _EARLY * GPU_EVENTS_S:
                self._event_at[rank] = now
                self.launcher.events.report("gpus", **_make_fields(self.launcher.state.ranks[rank]))
        standby = self.launcher.front.standby
        if standby is not None and now >= self._written_at + _EARLY * _JOBS_S:
            self._written_at = now
            runs = self.launcher.state.ranks.values()
            standby.record_gpus([_make_fields(run) for run in runs if run.gpu_use is not None])


def _make_fields(run: RankRun) -> dict[str, object]:
    used = run.gpu_use
    return {
        "rank": run.process_id,
        "host": run.host,
        "activity": used.activity.value if used is not None and used.activity is not None else None,
        "gpus": used.list_rows() if used is not None else [],
    }


PART = GpuReports

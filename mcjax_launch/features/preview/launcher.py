"""Part of the launcher that collects what ranks report that run alone, and prints it at the end."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.features.preview.messages import (
    Alone,
    Calls,
    Checkpoint,
    PreviewedProgram,
    Wanted,
)
from mcjax_launch.features.preview.options import PreviewOptions, parse_memory
from mcjax_launch.features.preview.report import (
    Chip,
    RankReport,
    find_misfits,
    find_rematerialized,
    format_report,
    make_record,
)
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.codec import to_json
from mcjax_launch.wire.hook_messages import Failed
from mcjax_launch.wire.messages import Exited, FromHook

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.journal.summary import Summary
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import ToAgent, ToLauncher


class PreviewReport(LauncherPart):
    """Part that reports what the programs of ranks need."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        job = launcher.job
        on = PreviewOptions.of(job).on or ""
        self._chip = Chip(on, parse_memory(on) or 0)
        self._ranks = {rank: RankReport(rank) for rank in job.alone}
        self._left = set(job.alone)

    def make_orders(self, ranks: Sequence["Rank"], plan: "Plan") -> Iterable["ToAgent"]:
        """Order the agent to start the ranks a few at a time."""
        return (Alone(),)

    def get_variable(self, rank: "Rank") -> str:
        """Return what is asked of a rank."""
        job = self.launcher.job
        topology = "" if self._chip.memory else self._chip.on
        wanted = Wanted(
            job.cpu_devices or 1,
            job.host_sizes,
            PreviewOptions.of(job).preview_steps or 0,
            topology,
        )
        return to_json(wanted)

    def on_message(self, link: "AgentConnection", message: "ToLauncher | Raw", now: float) -> None:
        """Record what a rank reports."""
        match message:
            case FromHook(rank=rank, message=PreviewedProgram() as program):
                self._ranks[rank].programs.append(program)
            case FromHook(rank=rank, message=Calls() as calls):
                self._ranks[rank].calls = calls
            case FromHook(rank=rank, message=Checkpoint() as checkpoint):
                self._ranks[rank].checkpoints.append(checkpoint)

    def on_from_hook(self, message: FromHook, _: float) -> None:
        """Record the exception that has ended a rank."""
        if isinstance(failed := message.message, Failed):
            # JAX itself asserts many things; a program's own line says so.
            is_jax = failed.exception == "AssertionError" and "assert" not in (failed.line or "")
            self._ranks[message.rank].error = "" if is_jax else failed.exception

    def on_exited(self, message: Exited, _: float) -> None:
        """Judge at the end of the last rank whether all programs fit, if no rank has failed."""
        state, report = self.launcher.state, self._ranks[message.rank]
        report.has_failed = state.ranks[message.rank].failed
        report.rematerialized += find_rematerialized(state.tails.get_tails(message.rank)[1])
        self._left.discard(message.rank)
        has_failed = any(run.failed for run in state.ranks.values())
        if self._left or has_failed or self.launcher.policy.ending:
            return
        if misfits := find_misfits(self._ranks.values(), self._chip):
            first, *others = misfits
            self.launcher.stop(StopReason(first, exit_status.FAILED, tuple(others)))

    def on_summary(self, summary: "Summary") -> None:
        """Print the report."""
        job = self.launcher.job
        ranks = [rank for rank in self._ranks.values() if rank.rank not in self._left]
        lines = list(format_report(ranks, job.num_processes, job.cpu_devices or 1, self._chip))
        self.launcher.console.say("\n".join(lines))
        self.launcher.state.preview = make_record(ranks, lines, self._chip)


PART = PreviewReport

"""Reports of agents and hooks on ranks: they go to the journal, and then the launcher acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcjax_launch.journal.facts import MemoryExhausted
from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.launcher.stop_policy import RankFailure
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire import exit_status, messages
from mcjax_launch.wire.exit_status import ENDING
from mcjax_launch.wire.frames import STDERR, Data

if TYPE_CHECKING:
    from mcjax_launch.launcher.part import JobLauncher


# What programs print that find no memory on a GPU: XLA's allocator again and again, and PyTorch.
_OUT_OF_MEMORY = (
    b"CUDA_ERROR_OUT_OF_MEMORY",
    b"ran out of memory trying to allocate",
    b"RESOURCE_EXHAUSTED: Out of memory",
    b"CUDA out of memory",
)


class RankReports:
    """Receiver of the messages on ranks, from their start to their end.

    Args:
        launcher: the launcher, whose journal and policy learn what has happened.

    """

    def __init__(self, launcher: JobLauncher) -> None:
        self._launcher = launcher
        self._journal = launcher.journal
        self._state = launcher.state

    def on_start(self, _: AgentConnection, message: messages.Started) -> None:
        """Handle that a rank's process runs."""
        self._journal.append(message)

    def on_output(self, link: AgentConnection, data: Data) -> None:
        """Handle a piece of a rank's output; let its agent send more if there is room."""
        self._journal.append(data)
        if data.stream == STDERR and any(map(data.payload.__contains__, _OUT_OF_MEMORY)):
            self._report_exhaustion(data.rank)
        if self._launcher.console.has_room:
            link.give_credit()

    def _report_exhaustion(self, rank: int) -> None:
        """Record that a rank finds no memory on a GPU, at its first message that says so."""
        if self._state.ranks[rank].usage.gpus.exhausted_at is None:
            self._launcher.parts.load_gpu_reports()  # which read it
            self._journal.append(MemoryExhausted(rank))

    def on_usage(self, _: AgentConnection, message: messages.Usage) -> None:
        """Handle a sample of what ranks use."""
        if message.gpus:
            self._launcher.parts.load_gpu_reports()  # which read it
        self._journal.append(message)

    def on_hook_message(self, _: AgentConnection, message: messages.FromHook) -> None:
        """Handle what the hook in a rank's Python reports."""
        parts, run = self._launcher.parts, self._state.ranks[message.rank]
        parts.load_explanations()  # which read it
        had_failed = run.hidden_failure is not None
        self._journal.append(message)
        if run.hidden_failure is not None and not had_failed:
            self._judge_end(run)
        self._shorten_grace()

    def on_exit(self, _: AgentConnection, message: messages.Exited) -> None:
        """Handle that a rank's process has ended."""
        self._journal.append(message)
        if message.status:
            self._judge_end(self._state.ranks[message.rank])
        self._shorten_grace()

    def _shorten_grace(self) -> None:
        """Shorten the grace after the user's signal if the remaining ranks only wait, or end."""
        policy = self._launcher.policy
        if policy.interrupts and (self._state.only_ends or self._state.only_waits):
            self._launcher.perform(policy.shorten_grace(self._state.only_ends))

    def _judge_end(self, run: RankRun) -> None:
        """Let the stop policy decide what follows from a rank's failure, or end with a status."""
        launcher = self._launcher
        if any(part.on_rank_failure(run) for part in launcher.parts):
            return
        failure = None
        if run.failed and not run.after_signal:
            is_victim = determine_verdict(run) is Verdict.VICTIM
            # A signal that ends jobs may have come to the agent too.
            is_signalled = run.exit_status in map(exit_status.compute_signal_status, ENDING)
            # Others' Python programs may fail alike before they join.
            has_hook = run.process.hooked and (run.status or 0) > 0
            is_early = has_hook and run.membership.joined_at is None
            failure = RankFailure(run.process_id, is_victim, is_signalled, is_early)
        launcher.perform(launcher.policy.on_rank_end(failure))

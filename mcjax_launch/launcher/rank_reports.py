"""Handling of what agents and hooks report on ranks: recorded, printed, and judged at an end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mcjax_launch import features
from mcjax_launch.diagnosis.root_cause import ran_other_collective
from mcjax_launch.diagnosis.summary import describe_failure, describe_rank_end
from mcjax_launch.diagnosis.verdict import determine_verdict
from mcjax_launch.launcher.stop_policy import RankFailure
from mcjax_launch.runs.rank_run import RankRun, Verdict
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire import exit_status, hook_messages, messages
from mcjax_launch.wire.frames import STDERR, Data, encode_message
from mcjax_launch.wire.signals import ENDING

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.snapshots import Stack
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
        launcher: the launcher, whose state, console, events and policy the messages change.

    """

    def __init__(self, launcher: JobLauncher) -> None:
        self._launcher = launcher
        self._state = launcher.state
        self._console = launcher.console
        self._events = launcher.events

    def on_start(self, link: AgentConnection, message: messages.Started) -> None:
        """Record that a rank's process runs."""
        rank, pid = message.rank, message.pid
        self._state.record_start(rank, pid, time.monotonic())
        self._events.report("started", rank=rank, host=link.host.name, pid=pid)
        # What an earlier process of the rank has returned is void.
        self._events.values.write((encode_message(message),))
        self._console.show_detail(f"rank {rank} on {link.host.name}: pid {pid}")
        standby, runs = self._launcher.front.standby, self._state.ranks.values()
        if standby is not None and all(run.process.started_at for run in runs):
            standby.record_start()

    def on_output(self, link: AgentConnection, data: Data) -> None:
        """Pass on a piece of a rank's output; let its agent send more if there is room."""
        self._state.record_output(data.rank, time.monotonic())
        self._state.tails.feed(data.rank, data.stream, data.payload)
        self._console.feed(data.rank, data.stream, data.payload)
        if data.stream == STDERR and any(map(data.payload.__contains__, _OUT_OF_MEMORY)):
            self._launcher.parts.load_gpu_reports().on_exhaustion(data.rank, time.monotonic())
        if self._console.has_room:
            link.give_credit()

    def on_usage(self, _: AgentConnection, message: messages.Usage) -> None:
        """Record a sample of what ranks use."""
        now = time.monotonic()
        self._state.record_usage(message, now)
        if message.gpus:
            self._launcher.parts.load_gpu_reports().on_usage(message, now)

    def on_hook_message(self, _: AgentConnection, message: messages.FromHook) -> None:
        """Record what the hook in a rank's Python reports."""
        from mcjax_launch.runs import hook_events  # only Python's ranks need it

        rank, said = message.rank, message.message
        if isinstance(said, hook_messages.Failed) and message.main and not said.has_calls:
            self._console.announce_failure(rank, said)
        has_failed = hook_events.apply(self._state, message, time.monotonic())
        self._report_event(rank, said)
        if has_failed:
            self._judge_end(rank)
        parts = self._launcher.parts
        if self._state.ranks[rank].compilations.on_accelerator and not self._state.ending:
            parts.load(features.ON_ACCELERATORS)
        parts.load_explanations()
        self._inform_parts(message)
        self._shorten_grace()

    def _report_event(self, rank: int, said: hook_messages.HookMessage) -> None:
        host, call = self._state.ranks[rank].host, self._state.ranks[rank].membership.call
        is_first = rank == min(self._state.ranks)
        match said:
            case hook_messages.Joining():
                self._events.report("joining", rank=rank, host=host)
                if said.replaced and is_first:
                    self._console.show_detail(
                        f"initialize(){f' at {said.where}' if said.where else ''} names "
                        f"{said.replaced}, a placeholder: using the job's own coordinator"
                    )
            case hook_messages.Joined():
                self._events.report("joined", rank=rank, host=host)
                if is_first and call is not None:
                    address = "a private socket" if said.private else call.coordinator_address
                    self._console.show_detail(f"rank {rank} joined at {address}")
            case hook_messages.Failed() if not self._state.ranks[rank].was_interrupted:
                self._events.report("failed", rank=rank, host=host, message=describe_failure(said))

    def on_exit(self, _: AgentConnection, message: messages.Exited) -> None:
        """Record that a rank's process has ended."""
        rank = message.rank
        if self._state.record_exit(message, time.monotonic()):
            self._judge_end(rank)
        run = self._state.ranks[rank]
        words = describe_rank_end(run)
        self._inform_parts(message)
        self._events.report(
            "ended", rank=rank, host=run.host, exit_status=run.exit_status, message=words
        )
        self._console.show_detail(f"rank {rank}: {words}")
        self._shorten_grace()

    def _inform_parts(self, message: messages.FromHook | messages.Exited) -> None:
        for part in self._launcher.parts:
            part.on_rank_message(message, time.monotonic())

    def _shorten_grace(self) -> None:
        """Shorten the grace after the user's signal if the remaining ranks only wait, or end."""
        policy = self._launcher.policy
        if policy.interrupts and (self._state.only_ends or self._state.only_waits):
            self._launcher.perform(policy.shorten_grace(self._state.only_ends))

    # --- a rank that has failed, or is about to end with a status other than 0 ---

    def _judge_end(self, rank: int) -> None:
        """Let the stop policy decide what follows from a rank's end."""
        run = self._state.ranks[rank]
        self._state.keep_output(rank)
        verdict = determine_verdict(run)
        self._console.set_verdict(rank, verdict, run.failure)
        launcher = self._launcher
        if launcher.parts.survivors is not None and launcher.parts.survivors.on_rank_failure(run):
            return
        failure = None
        if run.failed and not run.after_signal:
            is_victim = verdict is Verdict.VICTIM
            # A signal that ends jobs may have come to the agent too.
            is_signalled = run.exit_status in map(exit_status.compute_signal_status, ENDING)
            # Others' Python programs may fail alike before they join.
            has_hook = run.process.hooked and (run.status or 0) > 0
            is_early = has_hook and run.membership.joined_at is None
            failure = RankFailure(rank, is_victim, is_signalled, is_early)
            if ran_other_collective(run) or (is_victim and _gave_up_waiting(run)):
                # Ask for the ranks' positions before they are ended.
                launcher.stacks.request(launcher.links, self._record_late_positions)
        launcher.perform(launcher.policy.on_rank_end(failure))

    def _record_late_positions(self, stacks: list[Stack]) -> None:
        from mcjax_launch.diagnosis.snapshots import make_snapshots

        for seen in make_snapshots(self._state, stacks).values():
            # The rank is ended, so no rank waits for it any longer.
            stands = seen.blocked_at if seen.is_surely_in_jax else seen.position_with_threads
            seen.run.late_position = seen.shared_compilation or stands


def _gave_up_waiting(run: RankRun) -> bool:
    from mcjax_launch.diagnosis.findings import collectives  # only a victim needs it

    return collectives.gave_up_waiting(run)

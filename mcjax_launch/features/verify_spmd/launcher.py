"""Execution of what the comparison of programs decides (--verify-spmd): answers, or an end."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcjax_launch.features.verify_spmd.watch import (
    Decision,
    Diverged,
    PollRanks,
    Release,
    Say,
    ShowCode,
    SpmdWatch,
)
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.launcher.stack_requests import select_rank_stacks
from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.wire import hook_messages, messages

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.snapshots import Stack


class Verifier(LauncherPart):
    """Part that carries out the decisions of a watch over programs."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._watch = SpmdWatch(launcher.state)
        self._host_of: dict[int, Host] = {}
        self._pool = launcher.pool

    def get_variable(self, rank: Rank) -> str:
        """Return the value that makes a rank hold programs until they are compared."""
        return "hold"

    def on_begin(self, plan: Plan, now: float) -> None:
        """Compare the programs of ranks from now on."""
        self._host_of = {rank.process_id: rank.host for rank in plan.ranks}
        if self.launcher.job.num_hosts > 1 and not self.launcher.restart:
            mine = format_ranks(self.launcher.state.ranks)
            self.launcher.console.note(
                f"--verify-spmd compares only {mine}: other launchers start the other ranks"
            )

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which the watch has something to decide."""
        return self._watch.deadline

    def expire(self, now: float) -> None:
        """Ask the watch for decisions, and carry them out."""
        self._act(self._watch.expire(now) or ())

    def _act(self, decisions: Iterable[Decision]) -> None:
        """Carry out decisions of the watch."""
        for decision in decisions:
            match decision:
                case Say(text):
                    self.launcher.console.note(text)
                case PollRanks():
                    self._pool.send_all(messages.RequestUsage())
                    self.launcher.stacks.request(self._pool.links, self._on_stacks)
                case Release(fingerprint, ranks):
                    self._release(hook_messages.GateOpens(fingerprint), ranks)
                case ShowCode(fingerprint, rank):
                    show = hook_messages.ShowProgram(fingerprint)
                    self._pool.send_all(messages.ReplyToHooks((rank,), show))
                case Diverged(stop, is_settled=True):
                    self.launcher.perform(self.launcher.policy.on_limit(stop))
                case Diverged(stop):
                    self.launcher.perform(self.launcher.policy.record_early_reason(stop))

    def _release(self, opens: hook_messages.GateOpens, ranks: Iterable[int]) -> None:
        held = group_by_key((self._host_of[rank], rank) for rank in ranks)
        for link in self._pool.links:
            if link.host in held:
                link.send(messages.ReplyToHooks(tuple(held[link.host]), opens))

    def _on_stacks(self, stacks: list["Stack"]) -> None:
        self._act(self._watch.on_stacks(select_rank_stacks(stacks), time.monotonic()))


PART = Verifier

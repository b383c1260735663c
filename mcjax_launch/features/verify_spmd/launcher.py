"""Does what the comparison of programs decides (--verify-spmd): ranks are told, or the job ends."""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mcjax_launch.features.verify_spmd.watch import (
    Decision,
    Diverged,
    LookAtRanks,
    Release,
    Say,
    ShowCode,
    SpmdWatch,
)
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.plan import Plan
from mcjax_launch.kernel.launcher.stack_requests import StackRequests, of_ranks
from mcjax_launch.kernel.launcher.stop_policy import Effects, StopPolicy
from mcjax_launch.kernel.transport.pool import AgentPool
from mcjax_launch.kernel.wire import hook_messages, messages
from mcjax_launch.runs.state import RunState

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.stacks import Stack


class Verifying:
    """Acts on what a watch over programs decides.

    Args:
        state: of the run.
        plan: where its ranks are.
        pool: of the agents.
        stacks: asks for those of all ranks.
        note: shows a line.
        policy: knows how a job ends,
        perform: and does what that takes.

    Attributes:
        watch: decides, with time and with what hosts answer.

    """

    def __init__(
        self,
        state: RunState,
        plan: Plan,
        pool: AgentPool,
        stacks: StackRequests,
        note: Callable[[str], None],
        policy: StopPolicy,
        perform: Callable[[Effects], None],
    ) -> None:
        self.watch = SpmdWatch(state)
        self._host_of = {rank.process_id: rank.host for rank in plan.ranks}
        self._pool = pool
        self._stacks = stacks
        self._note = note
        self._policy = policy
        self._perform = perform

    def act(self, decisions: Iterable[Decision]) -> None:
        """Do what has been decided."""
        for decision in decisions:
            match decision:
                case Say(text):
                    self._note(text)
                case LookAtRanks():
                    self._pool.send_all(messages.RequestUsage())
                    self._stacks.request(self._pool.links, self._stacks_came)
                case Release(fingerprint, ranks):
                    self._release(hook_messages.GateOpens(fingerprint), ranks)
                case ShowCode(fingerprint, rank):
                    show = hook_messages.ShowProgram(fingerprint)
                    self._pool.send_all(messages.ReplyToHooks((rank,), show))
                case Diverged(stop, is_settled=True):
                    self._perform(self._policy.limit_reached(stop))
                case Diverged(stop):
                    self._perform(self._policy.reason_known(stop))

    def _release(self, opens: hook_messages.GateOpens, ranks: Iterable[int]) -> None:
        held: dict[Host, list[int]] = {}
        for rank in ranks:
            held.setdefault(self._host_of[rank], []).append(rank)
        for link in self._pool.links:
            if link.host in held:
                link.send(messages.ReplyToHooks(tuple(held[link.host]), opens))

    def _stacks_came(self, stacks: list["Stack"]) -> None:
        self.act(self.watch.stacks_came(of_ranks(stacks), time.monotonic()))

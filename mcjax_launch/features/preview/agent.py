"""Start of ranks that run alone, a few at a time."""

from __future__ import annotations

from ...agent.part import AgentPart, RankStarter

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...agent.part import HostAgent, Wanted
    from ...wire.codec import Message
    from ...wire.frames import Raw

# Ranks that run at the same time: each compiles for the whole mesh, with all cores.
_TOGETHER = 2


class LoneRanks(AgentPart, RankStarter):
    """Part that starts the first ranks, and another one when a rank has ended."""

    def __init__(self, agent: HostAgent) -> None:
        AgentPart.__init__(self, agent)
        RankStarter.__init__(self, agent.starter.files_limit)
        agent.starter = self
        self._waiting: list[Wanted] = []

    def on_message(self, message: Message | Raw) -> None:
        """Handle the order to start ranks like this, by which the part was made."""

    def start_ranks(self, ranks: Sequence[Wanted]) -> bool:
        """Start the first ranks; keep the others for later."""
        self._waiting = list(ranks[_TOGETHER:])
        self.agent.start_ranks(ranks[:_TOGETHER])
        return True

    def on_rank_end(self, rank: int) -> None:
        """Start the next rank; the ended one is not reaped yet, so the agent stays."""
        if self._waiting:
            self.agent.start_ranks([self._waiting.pop(0)])

    def on_ranks_end(self) -> None:
        """Start no more ranks, because the running ones are about to be ended."""
        self._waiting.clear()


PART = LoneRanks

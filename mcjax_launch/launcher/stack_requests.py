"""Requests for the stacks of all ranks, under way at their agents."""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mcjax_launch.protocol import messages
from mcjax_launch.transport.connection import AgentConnection

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.stacks import Stack

_MOST_S = 4.0


class StackRequests:
    """One request at a time; it is over when every agent has answered, or after some seconds.

    Args:
        on_complete: called with the result, as lines.

    Attributes:
        deadline: when to stop waiting (time.monotonic); None while nothing is asked.

    """

    def __init__(self, on_complete: Callable[[list[str]], None]) -> None:
        self._on_complete = on_complete
        self.deadline: float | None = None
        self._stacks: list[Stack] = []
        self._asked: set[AgentConnection] = set()

    def request(self, links: Iterable[AgentConnection], *, all_threads: bool) -> None:
        """Ask all agents, unless that is under way already.

        Args:
            all_threads: of running threads too, which may crash a rank.

        """
        if self.deadline is None:
            self.deadline = time.monotonic() + _MOST_S
            self._stacks = []
            self._asked = {link for link in links if link.greeted and not link.ended}
            for link in self._asked:
                link.send(messages.RequestStacks(all_threads))

    def add(self, link: AgentConnection, stacks: messages.Stacks) -> None:
        """The stacks of one process have arrived."""
        from mcjax_launch.diagnosis.stacks import Stack

        self._stacks.append(
            Stack(
                stacks.rank,
                link.host.name,
                stacks.pid,
                stacks.text,
                stacks.state,
                stacks.helper,
            )
        )

    def completed(self, link: AgentConnection) -> None:
        """An agent has sent all that it has."""
        self._asked.discard(link)

    def expire(self, now: float) -> None:
        """Report, once, when there is nothing more to wait for."""
        if self.deadline is None:
            return
        if now < self.deadline and not all(link.ended for link in self._asked):
            return
        self.deadline = None
        self._on_complete(self._in_words())

    def _in_words(self) -> list[str]:
        if not self._stacks:
            return []
        from mcjax_launch.diagnosis.stacks import stack_lines

        return stack_lines(self._stacks)

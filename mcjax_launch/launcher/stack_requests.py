"""Requests for the stacks of all ranks, under way at their agents."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcjax_launch.protocol import messages
from mcjax_launch.transport.connection import Link

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.stacks import Stack

_MOST_S = 4.0


class Dumps:
    """One request at a time; it is over when every agent has told all, or after some seconds.

    Attributes:
        deadline: when not to wait any longer (time.monotonic); None while nothing is asked.

    """

    def __init__(self) -> None:
        self.deadline: float | None = None
        self._stacks: list[Stack] = []
        self._asked: set[Link] = set()

    def request(self, links: Iterable[Link], *, of_all_threads: bool) -> None:
        """Ask all agents, unless that is under way already.

        Args:
            of_all_threads: also of those that run meanwhile, which may crash a rank.

        """
        if self.deadline is None:
            self.deadline = time.monotonic() + _MOST_S
            self._stacks = []
            self._asked = {link for link in links if link.greeted and not link.ended}
            for link in self._asked:
                link.send(messages.RequestStacks(of_all_threads))

    def add(self, link: Link, said: messages.Stacks) -> None:
        """What an agent tells of one process."""
        from mcjax_launch.diagnosis.stacks import Stack

        stack = Stack(said.rank, link.host.name, said.pid, said.text, said.state, said.helper)
        self._stacks.append(stack)

    def told_all(self, link: Link) -> None:
        """An agent has no more to tell."""
        self._asked.discard(link)

    def finished(self) -> list[str] | None:
        """What came of the request, in words, once, when there is nothing more to wait for."""
        if self.deadline is None:
            return None
        if time.monotonic() < self.deadline and not all(link.ended for link in self._asked):
            return None
        self.deadline = None
        if not self._stacks:
            return []
        from mcjax_launch.diagnosis.stacks import in_words

        return in_words(self._stacks).split("\n")

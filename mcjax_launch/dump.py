"""A request for the stacks of all ranks, under way at their agents."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from mcjax_launch.agent import wire
from mcjax_launch.link import Link
from mcjax_launch.stacks import Stack

_MOST_S = 4.0


class Dump:
    """Complete when every agent has said that it has told all, or after some seconds.

    Attributes:
        deadline: when not to wait any longer (time.monotonic).

    """

    def __init__(self, links: Iterable[Link]) -> None:
        self.deadline = time.monotonic() + _MOST_S
        self.stacks: list[Stack] = []
        self._asked = {link for link in links if link.greeted and not link.ended}
        for link in self._asked:
            link.send(wire.DUMP)

    def add(self, link: Link, rank: int, body: Mapping[str, Any]) -> None:
        """What an agent tells of one process."""
        self.stacks.append(Stack(rank, link.host.name, **body))

    def told_all(self, link: Link) -> None:
        """An agent has no more to tell."""
        self._asked.discard(link)

    @property
    def complete(self) -> bool:
        """Whether there is nothing more to wait for."""
        return time.monotonic() >= self.deadline or all(link.ended for link in self._asked)

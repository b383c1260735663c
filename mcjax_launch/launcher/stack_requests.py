"""Requests to the agents for the stacks of all ranks."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire import messages

if TYPE_CHECKING:
    from mcjax_launch.journal.facts import Stack

    OnComplete = Callable[[list[Stack]], None]

_MOST_S = 4.0


def select_rank_stacks(stacks: "Sequence[Stack]") -> "list[Stack]":
    """Return the stacks without those of import servers, which are no ranks."""
    return [stack for stack in stacks if not stack.importing]


class _Request(NamedTuple):
    """Request: the functions to call with the stacks, and which stacks to include."""

    on_complete: "list[OnComplete]"
    all_threads: bool


class StackRequests:
    """Queue of requests for stacks; each ends when every agent has answered, or after a time limit.

    Attributes:
        deadline: end of the wait for answers (time.monotonic); None while nothing is requested.

    """

    def __init__(self) -> None:
        self.deadline: float | None = None
        self._requests: list[_Request] = []  # the first is in progress
        self._links: Sequence[AgentConnection] = ()
        self._stacks: list[Stack] = []
        self._asked: set[AgentConnection] = set()

    def request(
        self,
        links: Iterable[AgentConnection],
        on_complete: "OnComplete",
        *,
        all_threads: bool = False,
    ) -> None:
        """Ask all agents for stacks; share the answers to an earlier request that is not complete.

        To ask again would be too late: what follows may end the ranks.

        Args:
            links: the links to the agents.
            on_complete: function called with the stacks.
            all_threads: True to ask for all threads although the main thread runs.

        """
        for waiting in self._requests:
            if waiting.all_threads >= all_threads:
                if on_complete not in waiting.on_complete:
                    waiting.on_complete.append(on_complete)
                return
        self._requests.append(_Request([on_complete], all_threads))
        self._links = tuple(links)
        if len(self._requests) == 1:
            self._begin()

    def _begin(self) -> None:
        request = self._requests[0]
        self.deadline = time.monotonic() + _MOST_S
        self._stacks = []
        self._asked = {link for link in self._links if link.greeted and not link.ended}
        for link in self._asked:
            link.send(messages.RequestStacks(request.all_threads))

    def record_stacks(
        self, link: AgentConnection, stacks: messages.Stacks | messages.StacksComplete
    ) -> None:
        """Record a process's stacks, or that an agent has sent all of its stacks."""
        if isinstance(stacks, messages.StacksComplete):
            self._asked.discard(link)
            return
        from mcjax_launch.journal.facts import Stack

        self._stacks.append(Stack(host=link.host.name, **vars(stacks)))

    def expire(self, now: float) -> None:
        """Pass on the stacks when all agents have answered, or the deadline has passed."""
        if self.deadline is None:
            return
        if now < self.deadline and not all(link.ended for link in self._asked):
            return
        request, stacks = self._requests.pop(0), self._stacks
        self.deadline = None
        if self._requests:
            self._begin()
        for call in request.on_complete:
            call(stacks)

"""Passes connections to JAX's coordination service on, from one host's agent to another's."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import TypeAlias

from mcjax_launch.features.relay.messages import (
    NAME,
    RelayEnds,
    RelayListens,
    RelayOpens,
    Relays,
)
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.kernel.launcher.launcher import Launcher
from mcjax_launch.kernel.launcher.part import LauncherPart
from mcjax_launch.kernel.transport.connection import AgentConnection
from mcjax_launch.kernel.wire.frames import Raw, encoded, raw
from mcjax_launch.kernel.wire.messages import Credit, ToAgent, ToLauncher

End: TypeAlias = tuple[AgentConnection, int]


class CoordinatorRelay(LauncherPart):
    """Passes on what comes; each end of a stream has its own number for it.

    It holds nothing itself: an agent sends no more than the other end has taken, and a window.
    """

    def __init__(self, launcher: Launcher) -> None:
        super().__init__(launcher)
        self._first: AgentConnection | None = None  # of rank 0's host
        self._numbers = count(1)  # for rank 0's agent, which has streams of all the others
        self._ends: dict[End, End] = {}  # the other end of each

    def orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Where the hosts are several."""
        relays: list[ToAgent] = [Relays()] if len(plan.hosts) > 1 else []
        return relays if self._first is None else [*relays, RelayListens()]

    def received(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """An agent has sent something for another."""
        match message:
            case RelayListens():
                self._first = link
                for other in self.launcher.links:
                    if other is not link:
                        other.send(message)
            case RelayOpens(stream):
                self._open((link, stream))
            case Raw(number=number) | Credit(number=number) | RelayEnds(stream=number):
                self._pass_on((link, number), message)

    def _open(self, near: End) -> None:
        if self._first in (None, near[0]) or near in self._ends:  # or it has no such number to give
            near[0].send_later(encoded(RelayEnds(near[1])))
            return
        assert self._first is not None
        far = self._first, next(self._numbers)
        self._ends[near], self._ends[far] = far, near
        self._first.send_later(encoded(RelayOpens(far[1])))

    def _pass_on(self, end: End, event: Raw | Credit | RelayEnds) -> None:
        other = self._ends.get(end)
        if other is None:
            return  # it has ended at the other end
        link, number = other
        match event:
            case Raw():
                link.send_later(raw(NAME, number, event.payload))
            case Credit():
                link.send(event.replaced(number=number))
            case RelayEnds():
                del self._ends[end], self._ends[other]
                link.send_later(encoded(RelayEnds(number)))

    def lost(self, link: AgentConnection, now: float) -> None:
        """An agent says nothing more: its ends of all streams are closed."""
        if link is self._first:
            self._first = None
        for end in [end for end in self._ends if end[0] is link]:
            self._pass_on(end, RelayEnds(end[1]))


PART = CoordinatorRelay

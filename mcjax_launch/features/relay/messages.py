"""Messages for connections of ranks to the coordination service on another host."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent, ToLauncher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "relay"
#: So many bytes of a stream may be on their way in each direction,
RELAY_WINDOW = 1 << 16
#: in frames of so many at the most.
RELAY_PIECE = 1 << 14


class Relays(ToAgent):
    """Before the start: the ranks of this host reach the coordinator through the launcher."""


class RelayListens(ToAgent, ToLauncher):
    """Rank 0 listens on the socket of its host's agent: to the launcher, and from it to the others.

    From then on these listen in its place.
    """

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return (0,)


class RelayOpens(ToAgent, ToLauncher):
    """A rank has connected to its agent, which gives the stream its number.

    To the agent of rank 0's host: connect to rank 0. The number is then the launcher's own.
    """

    stream: int


class RelayEnds(ToAgent, ToLauncher):
    """The process at this end of a stream has closed it, or is gone: nothing more comes or goes."""

    stream: int

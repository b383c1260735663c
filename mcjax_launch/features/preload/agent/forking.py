"""The ranks of one host, forked one after another by the fork server.

The agent asks for each, for an heir if they may be started again, and closes the connection. The
server ends, and its children become the agent's, which adopts orphans. Each rank waits for a byte
before it begins: it comes when all are the agent's own. Ranks that cannot be forked are left to be
started afresh.
"""

from __future__ import annotations

import os

from ..messages import Fork, Forked, NotForked, Preloaded, StartedAfresh

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ....kernel.agent.part import Wanted
    from ....kernel.wire.codec import Message
    from ....kernel.wire.messages import RankOrder
    from .fork_server import ForkServerLink


class Forking:
    """Has the ranks of this host forked, once.

    Args:
        ranks: to be forked, at least one.
        standard: makes the streams of a rank; gives the ends that are to be its 0, 1 and 2.
        on_forked: called with each rank that has been forked, and its pid, before it begins.
        why: PROGRAM is forked, if nobody has asked for it.
        keeps: an heir of the server stays, if it can fork one of these.

    Attributes:
        forked: pids of the ranks that have been forked, by rank.
        afresh: those that have to be started otherwise.

    """

    def __init__(
        self,
        ranks: Sequence[Wanted],
        standard: Callable[[RankOrder], tuple[int, int, int]],
        on_forked: Callable[[int, int], None],
        why: str,
        *,
        keeps: bool,
    ) -> None:
        self.ranks = list(ranks)
        self.forked: dict[int, int] = {}
        self.afresh: list[Wanted] = []
        self._why = why
        self._seconds = 0.0  # that the imports have taken
        self._reasons: dict[str, list[int]] = {}  # against ranks that are started otherwise
        self._is_expected = False
        self._standard = standard
        self._on_forked = on_forked
        self._ahead = list(ranks)
        self._asked: tuple[Wanted, tuple[int, ...]] | None = None  # with its streams
        self._first_ends: tuple[int, ...] | None = None
        self._server: ForkServerLink | None = None
        self._keeps = keeps
        self._heir: ForkServerLink | None = None
        # What the forked ranks read from before they begin.
        self._start, self._starting = os.pipe()

    @property
    def has_begun(self) -> bool:
        """Whether the server has imported all, and is asked for ranks."""
        return self._server is not None

    @property
    def is_complete(self) -> bool:
        """Whether every rank has been forked, or cannot be."""
        return not self._ahead and self._asked is None

    def first_ends(self) -> tuple[int, ...]:
        """The ends of the first rank's streams, which the server has while it imports."""
        if self._first_ends is None:
            self._first_ends = self._standard(self.ranks[0][0])
        return self._first_ends

    def begin(self, server: ForkServerLink, seconds: float) -> None:
        """Ask for the first rank.

        Args:
            server: in which all is imported.
            seconds: that this has taken; 0: it has forked ranks before.

        """
        self._server, self._seconds = server, seconds
        self._ask()

    def received(self, answer: Forked | NotForked) -> None:
        """The server has answered."""
        if self._asked is not None:
            self._answered(answer)
            self._ask()
        elif self._heir is not None:
            self._heir.pid = answer.pid if isinstance(answer, Forked) else 0
            self._hang_up()

    def refuse_all(self, reason: str = "", *, expected: bool = False) -> None:
        """Have all started afresh; those that are forked end. No reason: they will tell it."""
        self._ahead, self.forked, self.afresh = [], {}, list(self.ranks)
        numbers = [rank.process_id for rank, _ in self.ranks]
        self._reasons, self._is_expected = {reason: numbers} if reason else {}, expected

    def _refuse(self, wanted: Wanted, reason: str) -> None:
        """Have this one started afresh."""
        self.afresh.append(wanted)
        self._reasons.setdefault(reason, []).append(wanted[0].process_id)

    def reports(self) -> Iterator[Message]:
        """What the launcher is to know of how it went."""
        if self.forked:
            yield Preloaded(tuple(self.forked), self._seconds, self._why)
        expected = bool(self._why) or self._is_expected
        for reason, ranks in self._reasons.items():
            yield StartedAfresh(tuple(ranks), reason, expected)

    def end(self) -> ForkServerLink | None:
        """Let the forked ranks begin, which are children of this process; the server's heir."""
        for rank, pid in self.forked.items():
            self._on_forked(rank, pid)
        os.write(self._starting, b"." * len(self.forked))
        heir = None
        if self.forked and self._heir is not None and self._heir.pid:
            heir, self._heir = self._heir, None
        self.close()
        return heir

    def close(self) -> None:
        """Close all that is open; forked ranks that have not begun will not."""
        self._hang_up()
        if self._heir is not None:
            self._heir.hang_up()
        self._settle()
        for fd in (self._start, self._starting, *(self._first_ends or ())):
            os.close(fd)

    # --- the connection ---

    def _ask(self) -> None:
        """Ask for the next rank, or an heir; after the last hang up: then the server ends."""
        while self._ahead:
            wanted = self._ahead.pop(0)
            try:
                self._ask_for(wanted)
            except ConnectionError:  # it has ended, which is about to be seen
                return
            except OSError as error:  # too many files, or too large an environment
                self._settle()
                self._refuse(wanted, str(error.strerror))
            else:
                return
        if not self._asks_for_heir():
            self._hang_up()

    def _asks_for_heir(self) -> bool:
        if not self._keeps or not self.forked or self._server is None:
            return False
        try:
            self._heir = self._server.heir()
        except OSError:  # without one ranks are started afresh
            return False
        return True

    def _ask_for(self, wanted: Wanted) -> None:
        rank, environ = wanted
        ends, self._first_ends = self._first_ends or self._standard(rank), None
        self._asked = wanted, ends
        assert self._server is not None
        order = Fork(rank.argv, _changes(self._server.environ, environ), rank.cores, rank.cwd)
        self._server.send(order, [*ends, self._start])

    def _answered(self, message: Forked | NotForked) -> None:
        assert self._asked is not None
        wanted, _ = self._asked
        self._settle()
        if isinstance(message, Forked):
            self.forked[wanted[0].process_id] = message.pid
        else:
            self._refuse(wanted, message.reason)

    def _settle(self) -> None:
        """The rank that was asked for has the ends of its streams, or does not need them."""
        for fd in self._asked[1] if self._asked is not None else ():
            os.close(fd)
        self._asked = None

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.hang_up()


def _changes(servers: dict[str, str], own: dict[str, str]) -> dict[str, str | None]:
    """What is different in a rank's environment."""
    names = sorted({*servers, *own})
    return {name: own.get(name) for name in names if own.get(name) != servers.get(name)}

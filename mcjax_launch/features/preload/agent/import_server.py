"""The agent's end of an import server: its process, its connection, and the ranks it forks."""

from __future__ import annotations

import os
import socket

from ....agent.stacks import StackSource
from ....agent.system import system
from ....agent.system.unix import Invocation
from ....machine.loop import READ, Loop
from ....wire import hook_environ
from ....wire.codec import Malformed, to_json
from ....wire.source_lines import END_OF_STACKS
from ..messages import NAME, Fork, Forked, ForkMessage, NotForked, Preloaded, StartedAfresh

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ....agent.part import Wanted
    from ....machine.system import Limit
    from ....wire.codec import Message
    from ....wire.messages import RankOrder


_MOST_PACKET = 1 << 16


class ImportServerLink:
    """The agent's link to an import server: a process that imports modules, and then forks ranks.

    Args:
        order: names of modules, and behind a colon "auto" if the user has not named them.
        environ: environment with which the server is started.
        loop: event loop that reports packets.
        on_packet: called with each packet: a message, or text of a stack.

    """

    def __init__(
        self,
        order: str,
        environ: dict[str, str],
        loop: Loop,
        on_packet: Callable[[ForkMessage | str], None],
    ) -> None:
        self.pid = 0
        self.order = order
        self.environ = environ
        self._loop = loop
        self._on_packet = on_packet
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        loop.watch(ours.fileno(), READ, lambda ready: self._receive())
        self._connection: socket.socket | None = ours

    def start(self, rank: RankOrder, standard: Sequence[int], files_limit: Limit | None) -> None:
        """Start the import server.

        Args:
            rank: rank whose command the server gets.
            standard: descriptors for the server's 0, 1 and 2.
            files_limit: limit of open files; see `System.spawn`.

        Raises:
            OSError, SpawnError: the process cannot be started.

        """
        order = f"{NAME}:{self._theirs.fileno()}:{self.order}"
        environ = {**self.environ, hook_environ.RUN_INSTEAD: order}
        self._theirs.set_inheritable(True)
        try:
            self.pid = system.spawn(
                Invocation(rank.argv, environ, rank.cwd, standard, rank.settings, files_limit)
            )
        finally:
            self._theirs.close()

    def send(self, message: ForkMessage, descriptors: Sequence[int]) -> None:
        """Send a message with descriptors.

        Raises:
            OSError: the server is gone, or there are too many files, or the message is too long.

        """
        if self._connection is None:
            raise BrokenPipeError
        socket.send_fds(self._connection, [to_json(message).encode()], descriptors)

    def reap(self) -> int | None:
        """Return the server's exit status after handling its last packets; None if it runs."""
        status = system.read_exit_status(self.pid)
        if status is not None:
            while self._receive():
                pass
            self.hang_up()
            system.reap(self.pid)
        return status

    def hang_up(self) -> None:
        """Close the connection; the server then ends, after the imports under way."""
        if self._connection is not None:
            self._loop.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _receive(self) -> bool:
        """Receive a packet and pass it to `on_packet`; return whether there may be more."""
        if self._connection is None:
            return False
        try:
            data = self._connection.recv(_MOST_PACKET)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:  # its exit status says more than the closed connection
            self.hang_up()
            return False
        self._on_packet(_parse_packet(data.decode("utf-8", "replace")))
        return True


class Importer(StackSource):
    """The server as a process that can be asked for its stack, which it sends in packets."""

    importing = True

    def add_text(self, text: str) -> None:
        """Record the server's stack, which arrives in one message."""
        *lines, end = text.splitlines()
        for line in lines:
            self._pieces.add(line)
        self.has_answered = end == END_OF_STACKS


def _parse_packet(text: str) -> ForkMessage | str:
    """Parse a packet: return its message, or its text if it is part of a stack."""
    if text.startswith('["'):
        try:
            return ForkMessage.of(text)
        except Malformed:
            return text
    return text


# --- its ranks, forked one after another ---
# The agent asks for each rank, and closes the connection. The server ends, and the agent adopts its
# children. Each rank waits for a byte before it begins: the agent sends the bytes when all ranks
# are its own children. Ranks that cannot be forked are started afresh.


class Forking:
    """One round of forking the ranks of this host.

    Args:
        ranks: the ranks to fork, at least one.
        standard: makes a rank's streams; returns the descriptors for its 0, 1 and 2.
        on_forked: called with each forked rank and its pid, before the rank begins.
        why: the reason for --preload, if the user has not asked for it; else "".

    Attributes:
        forked: pids of the forked ranks, by rank.
        afresh: ranks that must be started without forking.

    """

    def __init__(
        self,
        ranks: Sequence[Wanted],
        standard: Callable[[RankOrder], tuple[int, int, int]],
        on_forked: Callable[[int, int], None],
        why: str,
    ) -> None:
        self.ranks = list(ranks)
        self.forked: dict[int, int] = {}
        self.afresh: list[Wanted] = []
        self._why = why
        self._seconds = 0.0  # that the imports have taken
        self._reasons: dict[str, list[int]] = {}  # ranks that are started afresh, by reason
        self._standard = standard
        self._on_forked = on_forked
        self._ahead = list(ranks)
        self._asked: tuple[Wanted, tuple[int, ...]] | None = None  # with its streams
        self._first_ends: tuple[int, ...] | None = None
        self._server: ImportServerLink | None = None
        # A pipe from which the forked ranks read a byte before they begin.
        self._start, self._starting = os.pipe()

    @property
    def has_begun(self) -> bool:
        """True if the server has imported everything, and forks ranks."""
        return self._server is not None

    @property
    def is_complete(self) -> bool:
        """True if every rank has been forked or refused."""
        return not self._ahead and self._asked is None

    def get_first_ends(self) -> tuple[int, ...]:
        """Return the ends of the first rank's streams; the server uses them while it imports."""
        if self._first_ends is None:
            self._first_ends = self._standard(self.ranks[0][0])
        return self._first_ends

    def begin(self, server: ImportServerLink, seconds: float) -> None:
        """Ask the server to fork the first rank.

        Args:
            server: a server that has imported everything.
            seconds: duration of the imports.

        """
        self._server, self._seconds = server, seconds
        self._ask()

    def on_answer(self, answer: Forked | NotForked) -> None:
        """Record the server's answer and ask for the next rank; hang up after the last answer."""
        if self._asked is not None:
            self._record_answer(answer)
            self._ask()

    def refuse_all(self, reason: str = "") -> None:
        """Record that all ranks have to be started afresh; ranks forked already end.

        Args:
            reason: the reason to report; "" if starting the ranks afresh will report it.

        """
        self._ahead, self.forked, self.afresh = [], {}, list(self.ranks)
        numbers = [rank.process_id for rank, _ in self.ranks]
        self._reasons = {reason: numbers} if reason else {}

    def _refuse(self, wanted: Wanted, reason: str) -> None:
        """Record that a rank cannot be forked and has to be started afresh, and why."""
        self.afresh.append(wanted)
        self._reasons.setdefault(reason, []).append(wanted[0].process_id)

    def make_reports(self) -> Iterator[Message]:
        """Yield reports for the launcher: which ranks were forked, and which were not, and why."""
        if self.forked:
            yield Preloaded(tuple(self.forked), self._seconds, self._why)
        for reason, ranks in self._reasons.items():
            yield StartedAfresh(tuple(ranks), reason)

    def end(self) -> None:
        """Let the forked ranks begin, as children of this process."""
        for rank, pid in self.forked.items():
            self._on_forked(rank, pid)
        os.write(self._starting, b"." * len(self.forked))
        self.close()

    def close(self) -> None:
        """Close all descriptors; forked ranks that have not begun then end."""
        self._hang_up()
        self._settle()
        for fd in (self._start, self._starting, *(self._first_ends or ())):
            os.close(fd)

    # --- the connection ---

    def _ask(self) -> None:
        """Ask for the next rank; after the last hang up, so that the server ends."""
        while self._ahead:
            wanted = self._ahead.pop(0)
            try:
                self._ask_for(wanted)
            except ConnectionError:  # the server has ended: `handle_ended_children` finds that
                return
            except OSError as error:  # too many files, or too large an environment
                self._settle()
                self._refuse(wanted, str(error.strerror))
            else:
                return
        self._hang_up()

    def _ask_for(self, wanted: Wanted) -> None:
        rank, environ = wanted
        ends, self._first_ends = self._first_ends or self._standard(rank), None
        self._asked = wanted, ends
        assert self._server is not None
        order = Fork(
            rank.argv, _compute_changes(self._server.environ, environ), rank.settings, rank.cwd
        )
        self._server.send(order, [*ends, self._start])

    def _record_answer(self, message: Forked | NotForked) -> None:
        assert self._asked is not None
        wanted, _ = self._asked
        self._settle()
        if isinstance(message, Forked):
            self.forked[wanted[0].process_id] = message.pid
        else:
            self._refuse(wanted, message.reason)

    def _settle(self) -> None:
        """Close the ends of the requested rank's streams: the rank has them, or is not forked."""
        for fd in self._asked[1] if self._asked is not None else ():
            os.close(fd)
        self._asked = None

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.hang_up()


def _compute_changes(servers: dict[str, str], own: dict[str, str]) -> dict[str, str | None]:
    """Return the variables in which a rank differs from the server; None for unset variables."""
    names = sorted({*servers, *own})
    return {name: own.get(name) for name in names if own.get(name) != servers.get(name)}

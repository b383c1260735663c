"""The agent's end of a fork server, which lives on when an attempt to run the job has failed."""

from __future__ import annotations

import socket

from ..protocol import hook_environ
from ..protocol.codec import Malformed, Tagged, from_json, to_json
from ..protocol.fork_messages import Copy, CopyEnded, ForkMessage, Imported, Importing
from ..protocol.loop import READ, Loop
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..protocol.messages import RankOrder
    from ..protocol.ulimits import Limit

    #: A rank, and its whole environment.
    Wanted = tuple[RankOrder, dict[str, str]]
    #: Is given what the other end says: a message, or the text of a stack.
    Received = Callable[[ForkMessage | str], None]

_MOST_PACKET = 1 << 16


class Packets:
    """A connection to a fork server, or to a copy of one.

    Args:
        connection: a socket of packets.
        loop: calls when there is something to read.
        on_packet: is given what has come.

    """

    def __init__(self, connection: socket.socket, loop: Loop, on_packet: Received) -> None:
        self._connection: socket.socket | None = connection
        self._loop = loop
        self._on_packet = on_packet
        connection.setblocking(False)
        loop.watch(connection.fileno(), READ, lambda ready: self._receive())

    def move_to(self, loop: Loop, on_packet: Received) -> None:
        """Another loop calls from now on, and somebody else is given what comes."""
        self._loop, self._on_packet = loop, on_packet
        if self._connection is not None:
            loop.watch(self._connection.fileno(), READ, lambda ready: self._receive())

    @property
    def fd(self) -> int:
        """Its descriptor; -1 once it is closed."""
        return self._connection.fileno() if self._connection is not None else -1

    def send(self, message: ForkMessage, descriptors: Sequence[int]) -> None:
        """Send a message with descriptors.

        Raises:
            OSError: the other end is gone, or there are too many files, or the message is too long.

        """
        if self._connection is None:
            raise BrokenPipeError
        socket.send_fds(self._connection, [to_json(message).encode()], descriptors)

    def receive_all(self) -> None:
        """Take what has come, which an end that has been seen elsewhere may be ahead of."""
        while self._receive():
            pass

    def close(self) -> None:
        """Hang up: the other end ends."""
        if self._connection is not None:
            self._loop.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _receive(self) -> bool:
        """Hand on a packet; whether there may be more."""
        if self._connection is None:
            return False
        try:
            data = self._connection.recv(_MOST_PACKET)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:  # how its process ends says more
            self.close()
            return False
        self._on_packet(_understood(data.decode("utf-8", "replace")))
        return True


def _understood(text: str) -> ForkMessage | str:
    """A message; or the text itself, which is a stack's."""
    if text.startswith('["'):
        try:
            message = Tagged.of_family(from_json(text))
        except Malformed:
            return text
        if isinstance(message, ForkMessage):
            return message
    return text


class ForkServer:
    """A process that imports modules, and is then copied for each attempt to fork ranks.

    Args:
        modules: that it imports.
        first: the rank whose command and environment it has.
        loop: calls when it says something.
        on_packet: is given that.

    Attributes:
        dump_signals: what has it send its stack, and those of all threads; 0: none does.
        seconds: that the imports have taken.
        alone: no process below it is left by the imports.
        is_idle: it can be copied, and no copy is at work.

    """

    def __init__(self, modules: str, first: Wanted, loop: Loop, on_packet: Received) -> None:
        self.modules = modules
        self.first = first
        self.dump_signals = (0, 0)
        self.seconds = 0.0
        self.alone = False
        self.is_idle = False
        self.pid = 0
        self._on_packet = on_packet
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._packets = Packets(ours, loop, self._received)

    def start(self, standard: Sequence[int], files_limit: Limit | None) -> None:
        """Start it.

        Args:
            standard: its 0, 1 and 2.
            files_limit: see `System.spawn`.

        Raises:
            OSError, SpawnError: it cannot be started.

        """
        rank, environ = self.first
        order = f"{self.modules}:{self._theirs.fileno()}"
        environ = {**environ, hook_environ.FORK_SERVER: order}
        self._theirs.set_inheritable(True)
        try:
            self.pid = system.spawn(rank.argv, environ, rank.cwd, standard, (), files_limit)
        finally:
            self._theirs.close()

    def rest(self) -> None:
        """Let go of an attempt that is over: nothing is called before `move_to`."""
        self._on_packet = lambda packet: None

    def move_to(self, loop: Loop, on_packet: Received) -> None:
        """Serve another attempt."""
        self._on_packet = on_packet
        self._packets.move_to(loop, self._received)

    @property
    def fd(self) -> int:
        """The descriptor of the connection to it."""
        return self._packets.fd

    def copy(self, loop: Loop, on_packet: Received) -> Packets:
        """Have it forked into a copy; the connection to that.

        Raises:
            OSError: it is gone, or there are too many files.

        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._packets.send(Copy(), [theirs.fileno()])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.is_idle = False
        return Packets(ours, loop, on_packet)

    def status(self) -> int | None:
        """How it has ended, after all that it has said; None if it runs."""
        status = system.status_of(self.pid)
        if status is not None:
            self._packets.receive_all()
            self.hang_up()
            system.reap(self.pid)
        return status

    def hang_up(self) -> None:
        """It is not wanted any more, and ends as soon as it has imported what it imports."""
        self.is_idle = False
        self._packets.close()

    def _received(self, packet: ForkMessage | str) -> None:
        if isinstance(packet, Importing):
            self.dump_signals = packet.dump_signal, packet.dump_all_signal
        if isinstance(packet, Imported):
            self.seconds, self.alone = packet.seconds, packet.alone
        if isinstance(packet, (Imported, CopyEnded)):
            self.is_idle = True
        self._on_packet(packet)

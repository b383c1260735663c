"""Carries connections of ranks to JAX's coordination service, where that is on another host.

Each rank connects to a unix socket of its own host's agent, as it would to rank 0's in a local job.
The bytes go through the launcher to the agent of rank 0's host, which connects to rank 0. They wait
for their turn (`Uplink.send_later`), and each stream has a window of its own in each direction.
"""

from __future__ import annotations

import socket

from ...kernel.agent.part import AgentPart
from ...kernel.wire import frames, hook_environ
from ...kernel.wire.hook_messages import Listening
from ...kernel.wire.loop import READ, WRITE
from ...kernel.wire.messages import Credit
from .messages import (
    NAME,
    RELAY_PIECE,
    RELAY_WINDOW,
    RelayEnds,
    RelayListens,
    RelayOpens,
    Relays,
)

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.agent.agent import Agent
    from ...kernel.wire.codec import Message
    from ...kernel.wire.messages import FromHook, Start

# What has reached a process is told in portions: each is a message.
_PORTION = RELAY_WINDOW // 4
_BACKLOG = 4096


class _Stream:
    """A process of this host at its end of a stream.

    Attributes:
        opened: the other end knows of it.
        credit: so many bytes may still be sent to the other end.
        unsent: what has come for the process, and it has not taken yet.
        untold: what it has taken since the other end was told.
        ended: the other end is closed, and nothing more is sent there.

    """

    def __init__(self, number: int, connection: socket.socket, opened: bool) -> None:
        self.number = number
        self.connection = connection
        self.opened = opened
        self.credit = RELAY_WINDOW
        self.unsent = bytearray()
        self.untold = 0
        self.ended = False

    def read(self) -> bytes | None:
        """What it says, none at its end; None if it says nothing now."""
        try:
            return self.connection.recv(min(self.credit, RELAY_PIECE))
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def write(self) -> bool:
        """Hand it what has come, as far as it takes that; False if it is gone."""
        try:
            while self.unsent:
                sent = self.connection.send(self.unsent)
                del self.unsent[:sent]
                self.untold += sent
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


class CoordinatorStreams(AgentPart):
    """The streams of one host, whichever end of them is here."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        # On which rank 0 listens, or on other hosts the agent instead.
        self._path = agent.coordinator_path
        self._loop = agent.loop
        self._uplink = agent.link.uplink
        self._server: socket.socket | None = None
        self._streams: dict[int, _Stream] = {}
        self._waiting: list[int] = []  # of rank 0's host: opened while rank 0 does not listen
        self._count = 0

    def starts(self, order: Start, environ: dict[str, str]) -> None:
        """Have the ranks of this host meet JAX's coordination service on a socket of ours."""
        environ[hook_environ.COORDINATOR] = self._path
        environ[hook_environ.RELAYED] = "1"

    def heard(self, said: FromHook) -> None:
        """Rank 0 may listen."""
        if isinstance(said.message, Listening):
            self._rank_0_listens()

    def _rank_0_listens(self) -> None:
        """Rank 0 of this host has made its socket: connect those that wait, and let others come."""
        waiting, self._waiting = self._waiting, []
        for number in waiting:
            self._connect(self._streams[number])
        self._send(RelayListens())

    def received(self, message: Message | frames.Raw) -> None:
        """Something has come from the launcher."""
        if isinstance(message, Relays):
            return
        if isinstance(message, RelayListens):
            self._listen()
            return
        if isinstance(message, RelayOpens):
            self._open(message.stream)
            return
        assert isinstance(message, (frames.Raw, Credit, RelayEnds))
        number = message.stream if isinstance(message, RelayEnds) else message.number
        stream = self._streams.get(number)
        if stream is None:
            return  # its process is gone, and the other end is about to hear of it
        if isinstance(message, frames.Raw):
            stream.unsent += message.payload
        elif isinstance(message, Credit):
            stream.credit += message.count
        else:
            stream.ended = True
        self._go_on(stream)

    def drain(self) -> bool:
        """Send what processes that have ended have left; whether that was all of it."""
        for stream in list(self._streams.values()):
            while self._read(stream):
                pass
        stalled = any(not stream.credit and not stream.ended for stream in self._streams.values())
        return not stalled

    def launcher_lost(self) -> None:
        """The launcher is gone, and with it all other hosts."""
        for stream in list(self._streams.values()):
            self._close(stream)
        if self._server is not None:
            self._loop.forget(self._server.fileno())
            self._server.close()
            self._server = None

    # --- new streams ---

    def _listen(self) -> None:
        """Be in rank 0's place for the ranks of this host."""
        if self._server is not None:
            return
        server = socket.socket(socket.AF_UNIX)
        try:
            server.bind(self._path)
        except OSError:  # a rank here takes itself for process 0 too, which JAX reports
            server.close()
            return
        server.listen(_BACKLOG)
        server.setblocking(False)
        self._server = server
        self.rank_ended()

    def rank_ended(self) -> None:
        """Accept who has connected: descriptors may have become free since that could not be."""
        if self._server is not None:
            self._loop.watch(self._server.fileno(), READ, lambda ready: self._accept())

    def _accept(self) -> None:
        assert self._server is not None
        while True:
            try:
                connection, _ = self._server.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files, until one is closed
                self._loop.forget(self._server.fileno())
                return
            connection.setblocking(False)
            self._count += 1
            stream = self._streams[self._count] = _Stream(self._count, connection, opened=False)
            self._go_on(stream)

    def _open(self, number: int) -> None:
        """Another host's rank wants to talk to rank 0."""
        try:
            connection = socket.socket(socket.AF_UNIX)
        except OSError:  # too many open files
            self._send_later(RelayEnds(number))
            return
        connection.setblocking(False)
        self._streams[number] = _Stream(number, connection, opened=True)
        self._connect(self._streams[number])

    def _connect(self, stream: _Stream) -> None:
        try:
            stream.connection.connect(self._path)
        except (FileNotFoundError, ConnectionRefusedError):
            # It left the job and has not joined it again yet: a client that were told would wait
            # for a second before another attempt.
            self._waiting.append(stream.number)
            return
        except OSError:  # it has more to do than it can
            self._close(stream)
            return
        self._go_on(stream)

    # --- bytes ---

    def _go_on(self, stream: _Stream) -> None:
        """Do what can be done, and have the loop call for the rest."""
        if stream.number in self._waiting:
            if stream.ended:
                self._close(stream)
            return
        if not stream.write() or (stream.ended and not stream.unsent):
            self._close(stream)
            return
        if stream.untold >= _PORTION and not stream.ended:
            self._send(Credit(stream.untold, NAME, stream.number))
            stream.untold = 0
        reads = stream.credit > 0 and not stream.ended
        events = (READ if reads else 0) | (WRITE if stream.unsent else 0)
        fd = stream.connection.fileno()
        if events:
            self._loop.watch(fd, events, lambda ready: self._ready(stream, ready))
        else:  # else its end would wake us again and again, before it can be told
            self._loop.forget(fd)

    def _ready(self, stream: _Stream, ready: int) -> None:
        if ready & ~WRITE and not self._read(stream) and stream.number not in self._streams:
            return
        self._go_on(stream)

    def _read(self, stream: _Stream) -> bool:
        """Send a piece of what it says; whether there may be more."""
        if not stream.credit or stream.ended or stream.number in self._waiting:
            return False
        data = stream.read()
        if data is None:
            return False
        if not data:
            self._close(stream)
            return False
        if not stream.opened:  # who only looks whether somebody listens says nothing
            stream.opened = True
            self._send_later(RelayOpens(stream.number))
        stream.credit -= len(data)
        self._uplink.send_later([frames.raw(NAME, stream.number, data)])
        return True

    def _close(self, stream: _Stream) -> None:
        """Its process is gone, or all that the other end had to say has been handed over."""
        self._loop.forget(stream.connection.fileno())
        stream.connection.close()
        self.rank_ended()
        del self._streams[stream.number]
        if stream.number in self._waiting:
            self._waiting.remove(stream.number)
        if stream.opened and not stream.ended:
            self._send_later(RelayEnds(stream.number))

    def _send(self, message: Message) -> None:
        self._uplink.send(frames.encoded(message))

    def _send_later(self, message: Message) -> None:
        """After the bytes of its stream."""
        self._uplink.send_later([frames.encoded(message)])


PART = CoordinatorStreams

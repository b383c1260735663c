"""Writes the launcher's standard input to those ranks of this host that take it."""

from __future__ import annotations

import os
from collections import deque

from ...kernel.agent.part import AgentPart
from ...kernel.wire.frames import Raw
from ...kernel.wire.loop import GONE, HANG_UP, WRITE
from ...kernel.wire.messages import Credit
from .messages import INPUT_WINDOW, NAME, InputEnds, TakenBy

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.agent.agent import Agent
    from ...kernel.wire.codec import Message

# What ranks have taken is told in portions: each is a message.
_PORTION = INPUT_WINDOW // 4


class _Pipe:
    """The way to one rank: what it has not taken yet. The pieces are shared by all pipes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pieces: deque[bytes] = deque()
        self.begun = 0  # of the first piece: so much has been written
        self.left = 0

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.left += len(piece)

    def write(self) -> None:
        """Write as much as there is room for.

        Raises:
            OSError: nobody reads any more.

        """
        try:
            while self.pieces:
                first = self.pieces[0]
                sent = os.write(self.fd, memoryview(first)[self.begun :])
                self.begun += sent
                self.left -= sent
                if self.begun == len(first):
                    self.pieces.popleft()
                    self.begun = 0
        except BlockingIOError:
            pass


class Inputs(AgentPart):
    """Writes what comes to each rank's pipe, and says how much all of them have taken.

    What is held is bounded by the launcher, which sends no more than INPUT_WINDOW ahead.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._loop = agent.loop
        self._send = agent.link.send
        self._ranks: tuple[int, ...] = ()
        self._pipes: dict[int, _Pipe] = {}
        self._untold = 0  # bytes that came, and were not told to be taken yet
        self._ended = False

    def received(self, message: Message | Raw) -> None:
        """Take what the launcher sends."""
        if isinstance(message, Raw):
            self._feed(message.payload)
        elif isinstance(message, TakenBy):
            self._ranks = message.ranks
        elif isinstance(message, InputEnds):
            self._end()

    def standard_input(self, rank: int) -> int | None:
        """Make the pipe of one more rank.

        Raises:
            OSError: there are too many open files.

        """
        if rank not in self._ranks:
            return None
        theirs, fd = os.pipe()
        os.set_blocking(fd, False)
        self._pipes[fd] = _Pipe(fd)
        self._loop.watch(fd, HANG_UP, lambda ready: self._ready(fd, ready))  # nothing to write yet
        return theirs

    def _feed(self, piece: bytes) -> None:
        """More has come."""
        self._untold += len(piece)
        for pipe in list(self._pipes.values()):
            pipe.add(piece)
            self._write(pipe)
        self._tell()

    def _end(self) -> None:
        """Nothing more comes: a rank that has taken all sees the end."""
        self._ended = True
        for pipe in list(self._pipes.values()):
            if not pipe.left:
                self._close(pipe)

    def _ready(self, fd: int, ready: int) -> None:
        pipe = self._pipes[fd]
        if ready & GONE:
            self._close(pipe)
        else:
            self._write(pipe)
        self._tell()

    def _write(self, pipe: _Pipe) -> None:
        try:
            pipe.write()
        except OSError:  # it has closed its end, or has ended
            self._close(pipe)
            return
        if self._ended and not pipe.left:
            self._close(pipe)
        else:
            events = WRITE if pipe.left else 0
            self._loop.watch(pipe.fd, events, lambda ready: self._ready(pipe.fd, ready))

    def _close(self, pipe: _Pipe) -> None:
        self._loop.forget(pipe.fd)
        os.close(pipe.fd)
        del self._pipes[pipe.fd]

    def _tell(self) -> None:
        """Say what all ranks have taken, or that none takes any more."""
        if not self._pipes:
            if not self._ended:
                self._send(InputEnds())
                self._ended = True
            return
        taken = self._untold - max(pipe.left for pipe in self._pipes.values())
        if taken >= _PORTION:
            self._untold -= taken
            self._send(Credit(taken, NAME))


PART = Inputs

"""Writing of the launcher's standard input to the ranks of this host that read it."""

from __future__ import annotations

import os
from collections import deque

from ...kernel.agent.part import AgentPart
from ...kernel.wire.frames import Raw
from ...kernel.wire.loop import GONE, HANG_UP, WRITE
from ...kernel.wire.messages import Credit
from .messages import INPUT_WINDOW, NAME, InputEnds, InputRanks

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...kernel.agent.part import HostAgent
    from ...kernel.wire.codec import Message

# Bytes that ranks must have read before a message reports them.
_PORTION = INPUT_WINDOW // 4


class _Pipe:
    """Pipe to a rank, with pieces not yet written to it; all pipes share the pieces' memory."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pieces: deque[bytes] = deque()
        self.begun = 0  # bytes of the first piece that are written
        self.left = 0

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.left += len(piece)

    def write(self) -> None:
        """Write as many bytes as the pipe has room for.

        Raises:
            OSError: the rank no longer reads.

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
    """Part that writes input to each rank's pipe, and reports how much all of them have read.

    The launcher bounds the data held here: it sends at most INPUT_WINDOW bytes ahead.
    """

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._loop = agent.loop
        self._send = agent.link.send
        self._ranks: tuple[int, ...] = ()
        self._pipes: dict[int, _Pipe] = {}
        self._unreported = 0  # bytes received, and not yet reported as read
        self._ended = False

    def received(self, message: Message | Raw) -> None:
        """Pass input on, or record the ranks that read it."""
        if isinstance(message, Raw):
            self._feed(message.payload)
        elif isinstance(message, InputRanks):
            self._ranks = message.ranks
        elif isinstance(message, InputEnds):
            self._end()

    def standard_input(self, rank: int) -> int | None:
        """Make a rank's pipe; return the rank's end, None if the rank reads no input.

        Raises:
            OSError: too many files are open.

        """
        if rank not in self._ranks:
            return None
        theirs, fd = os.pipe()
        os.set_blocking(fd, False)
        self._pipes[fd] = _Pipe(fd)
        self._loop.watch(fd, HANG_UP, lambda ready: self._ready(fd, ready))  # nothing to write yet
        return theirs

    def _feed(self, piece: bytes) -> None:
        """Write a piece of input to all pipes."""
        self._unreported += len(piece)
        for pipe in list(self._pipes.values()):
            pipe.add(piece)
            self._write(pipe)
        self._report_taken()

    def _end(self) -> None:
        """Close empty pipes, so that ranks notice the end of the input; the rest follows later."""
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
        self._report_taken()

    def _write(self, pipe: _Pipe) -> None:
        try:
            pipe.write()
        except OSError:  # the rank has closed its end, or has ended
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

    def _report_taken(self) -> None:
        """Report how many bytes all ranks have read, or that no rank reads any more."""
        if not self._pipes:
            if not self._ended:
                self._send(InputEnds())
                self._ended = True
            return
        taken = self._unreported - max(pipe.left for pipe in self._pipes.values())
        if taken >= _PORTION:
            self._unreported -= taken
            self._send(Credit(taken, NAME))


PART = Inputs

"""Writing of the launcher's standard input to the ranks of this host that read it."""

from __future__ import annotations

import os

from ...agent.launcher_link import RankInput
from ...agent.part import AgentPart
from ...machine.loop import GONE, HANG_UP, WRITE
from ...wire.frames import Raw
from ...wire.messages import Credit
from .messages import INPUT_WINDOW, NAME, InputEnds, InputRanks

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.part import HostAgent
    from ...wire.codec import Message

# Bytes that ranks must have read before a message reports them.
_PORTION = INPUT_WINDOW // 4


class Inputs(AgentPart, RankInput):
    """Part that writes input to each rank's pipe, and reports how much all of them have read.

    The launcher bounds the data held here: it sends at most INPUT_WINDOW bytes ahead.
    """

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        agent.streams.input = self
        self._loop = agent.loop
        self._send = agent.link.send
        self._ranks: tuple[int, ...] = ()
        self._pipes: dict[int, bytearray] = {}  # what is not yet written to each pipe
        self._unreported = 0  # bytes received, and not yet reported as read
        self._ended = False

    def on_message(self, message: Message | Raw) -> None:
        """Pass input on, or record the ranks that read it."""
        if isinstance(message, Raw):
            self._unreported += len(message.payload)
            self._pass_on(message.payload)
        elif isinstance(message, InputRanks):
            self._ranks = message.ranks
        elif isinstance(message, InputEnds):
            self._ended = True
            self._pass_on(b"")

    def open(self, rank: int) -> int | None:
        """Make a rank's pipe; return the rank's end, None if the rank reads no input.

        Raises:
            OSError: too many files are open.

        """
        if rank not in self._ranks:
            return None
        theirs, fd = os.pipe()
        os.set_blocking(fd, False)
        self._pipes[fd] = bytearray()
        # Nothing to write yet.
        self._loop.watch(fd, HANG_UP, lambda ready: self._on_ready(fd, ready))
        return theirs

    def _pass_on(self, piece: bytes) -> None:
        """Write a piece to all pipes; close them at the end."""
        for fd, left in list(self._pipes.items()):
            left += piece
            if left or self._ended:
                self._write(fd)
        self._report_taken()

    def _on_ready(self, fd: int, ready: int) -> None:
        if ready & GONE:
            self._close(fd)
        else:
            self._write(fd)
        self._report_taken()

    def _write(self, fd: int) -> None:
        """Write as many bytes as a pipe has room for; the loop reports when there is more room."""
        left = self._pipes[fd]
        try:
            del left[: os.write(fd, left)]
        except BlockingIOError:
            pass
        except OSError:  # the rank has closed its end, or has ended
            self._close(fd)
            return
        if self._ended and not left:
            self._close(fd)
        else:
            events = WRITE if left else 0
            self._loop.watch(fd, events, lambda ready: self._on_ready(fd, ready))

    def _close(self, fd: int) -> None:
        self._loop.forget(fd)
        os.close(fd)
        del self._pipes[fd]

    def _report_taken(self) -> None:
        """Report how many bytes all ranks have read, or that no rank reads any more."""
        if not self._pipes:
            if not self._ended:
                self._send(InputEnds())
                self._ended = True
            return
        taken = self._unreported - max(map(len, self._pipes.values()))
        if taken >= _PORTION:
            self._unreported -= taken
            self._send(Credit(taken, NAME))


PART = Inputs

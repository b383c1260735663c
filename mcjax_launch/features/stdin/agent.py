"""Writing of the launcher's standard input to rank 0."""

from __future__ import annotations

import os

from ...agent.launcher_link import RankInput
from ...agent.part import AgentPart
from ...machine.loop import GONE, HANG_UP, WRITE
from ...wire.frames import Raw
from ...wire.messages import Credit
from .messages import INPUT_WINDOW, NAME, InputEnds

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from ...agent.part import HostAgent
    from ...wire.codec import Message

# Bytes that the rank must have read before a message reports them.
_PORTION = INPUT_WINDOW // 4


class Input(AgentPart, RankInput):
    """Part that writes input to rank 0's pipe, and reports how much the rank has read.

    The launcher bounds the data held here: it sends at most INPUT_WINDOW bytes ahead.
    """

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        agent.streams.input = self
        self._loop = agent.loop
        self._send = agent.link.send
        self._fd = -1  # the writing end of rank 0's pipe
        self._left = bytearray()  # what is not yet written to it
        self._unreported = 0  # bytes received, and not yet reported as read
        self._ended = False

    def on_message(self, message: Message | Raw) -> None:
        """Pass input on."""
        if isinstance(message, Raw):
            self._unreported += len(message.payload)
            self._left += message.payload
        elif isinstance(message, InputEnds):
            self._ended = True
        else:
            return
        self._write()

    def open(self, rank: int) -> int | None:
        """Make rank 0's pipe; return the rank's end, None for other ranks.

        Raises:
            OSError: too many files are open.

        """
        if rank != 0:
            return None
        theirs, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        # Nothing to write yet.
        self._loop.watch(self._fd, HANG_UP, self._on_ready)
        return theirs

    def _on_ready(self, ready: int) -> None:
        if ready & GONE:
            self._close()
        else:
            self._write()

    def _write(self) -> None:
        """Write as many bytes as the pipe has room for; the loop reports when there is more."""
        if self._fd < 0:
            return
        try:
            del self._left[: os.write(self._fd, self._left)]
        except BlockingIOError:
            pass
        except OSError:  # the rank has closed its end, or has ended
            self._close()
            return
        if self._ended and not self._left:
            self._close()
            return
        self._loop.watch(self._fd, WRITE if self._left else 0, self._on_ready)
        taken = self._unreported - len(self._left)
        if taken >= _PORTION:
            self._unreported -= taken
            self._send(Credit(taken, NAME))

    def _close(self) -> None:
        """Close the pipe; if the input has not ended, report that the rank reads no more."""
        self._loop.forget(self._fd)
        os.close(self._fd)
        self._fd = -1
        if not self._ended:
            self._send(InputEnds())
            self._ended = True


PART = Input

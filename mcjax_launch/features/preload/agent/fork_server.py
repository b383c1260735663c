"""The agent's end of a fork server: its process, and the connection to it."""

from __future__ import annotations

import os
import socket
import time

from ....kernel.agent.stacks import Pieces
from ....kernel.agent.system import system
from ....kernel.wire import hook_environ
from ....kernel.wire.codec import Malformed, to_json
from ....kernel.wire.loop import READ, Loop
from ..messages import NAME, ForkMessage, Stay

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....kernel.agent.part import Wanted
    from ....kernel.wire.ulimits import Limit
    from .program import Choice

_MOST_PACKET = 1 << 16
_MOST_TEXT = 200


class ForkServerLink:
    """A process that imports modules, and then forks ranks.

    Args:
        modules: that it imports.
        first: the rank whose command and environment it has.
        loop: calls when it says something.
        on_packet: is given that: a message, or the text of a stack.

    Attributes:
        environ: that it was started with.

    """

    def __init__(
        self,
        modules: str,
        first: Wanted,
        loop: Loop,
        on_packet: Callable[[ForkMessage | str], None],
    ) -> None:
        self.pid = 0
        self._modules = modules
        self._first = first
        self.environ = first[1]
        self._loop = loop
        self._on_packet = on_packet
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        loop.watch(ours.fileno(), READ, lambda ready: self._receive())
        self._connection: socket.socket | None = ours

    def start(
        self, standard: Sequence[int], files_limit: Limit | None, choice: Choice | None
    ) -> None:
        """Start it.

        Args:
            standard: its 0, 1 and 2.
            files_limit: see `System.spawn`.
            choice: if nobody has asked for it.

        Raises:
            OSError, SpawnError: it cannot be started.

        """
        rank, environ = self._first
        guesses = "\n".join(f"{n}={v}" for n, v in choice.settings.items()) if choice else ""
        auto = "auto" if choice else ""
        order = f"{self._modules}:{self._theirs.fileno()}:{auto}:{guesses}"
        environ = {**environ, hook_environ.INSTEAD: f"{NAME}:{order}"}
        self._theirs.set_inheritable(True)
        try:
            self.pid = system.spawn(rank.argv, environ, rank.cwd, standard, rank.cores, files_limit)
        finally:
            self._theirs.close()

    def send(self, message: ForkMessage, descriptors: Sequence[int]) -> None:
        """Send a message with descriptors.

        Raises:
            OSError: it is gone, or there are too many files, or the message is too long.

        """
        if self._connection is None:
            raise BrokenPipeError
        socket.send_fds(self._connection, [to_json(message).encode()], descriptors)

    def heir(self) -> ForkServerLink:
        """Have it fork one that does the same later; its pid is what it answers.

        Raises:
            OSError: as for `send`.

        """
        heir = ForkServerLink(self._modules, self._first, self._loop, self._on_packet)
        try:
            self.send(Stay(), [heir._theirs.fileno()])
        except OSError:
            heir.hang_up()
            raise
        finally:
            heir._theirs.close()
        return heir

    def status(self) -> int | None:
        """How it has ended, after all that it has said; None if it runs."""
        status = system.status_of(self.pid)
        if status is not None:
            while self._receive():
                pass
            self.hang_up()
            system.reap(self.pid)
        return status

    def hang_up(self) -> None:
        """It is not wanted any more, and ends as soon as it has imported what it imports."""
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
        if not data:  # how it ends says more
            self.hang_up()
            return False
        self._on_packet(_understood(data.decode("utf-8", "replace")))
        return True


class HiddenOutput:
    """A pipe for what the server prints, where none of that is to be seen.

    Args:
        loop: calls when something is printed.
        on_text: is given the beginning of it, in one line.

    Attributes:
        end: that the server gets.

    """

    def __init__(self, loop: Loop, on_text: Callable[[str], object]) -> None:
        self._loop = loop
        self._on_text = on_text
        self._read_end, self.end = os.pipe()
        os.set_blocking(self._read_end, False)
        loop.watch(self._read_end, READ, lambda ready: self.read())

    def read(self) -> None:
        """See whether something has been printed."""
        try:
            data = os.read(self._read_end, _MOST_TEXT)
        except BlockingIOError:
            return
        self._loop.forget(self._read_end)
        if data:
            self._on_text(data.decode("utf-8", "replace").strip().partition("\n")[0])

    def close(self) -> None:
        """Nothing is expected any more."""
        self._loop.forget(self._read_end)
        os.close(self._read_end)
        os.close(self.end)


class Importer:
    """The server as one who is asked for its stack (`stacks.Asked`), which comes in packets.

    Args:
        rank: the first of those.
        pid: its own.

    """

    importing = True
    joined = False
    all_stacks = False

    def __init__(self, rank: int, pid: int) -> None:
        self.rank = rank
        self.pid = pid
        self.last_stack_at = 0.0
        self._pieces = Pieces()

    def take(self, text: str) -> None:
        """A piece of its stack has come."""
        self.last_stack_at = time.monotonic()
        self._pieces.add(text)

    @property
    def stacks(self) -> list[str]:
        """The lines of its stack."""
        return "".join(self._pieces).splitlines()


def _understood(text: str) -> ForkMessage | str:
    """A message; or the text itself, which is a stack's."""
    if text.startswith('["'):
        try:
            return ForkMessage.of(text)
        except Malformed:
            return text
    return text

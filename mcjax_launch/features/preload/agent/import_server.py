"""The agent's end of an import server: its process, its connection, and its stack."""

from __future__ import annotations

import os
import signal
import socket
import time

from ....agent.stacks import StackSource
from ....agent.system import system
from ....agent.system.unix import Invocation, SpawnError
from ....machine.loop import READ, Loop
from ....wire import hook_environ
from ....wire.codec import Malformed, to_json
from ....wire.source_lines import END_OF_STACKS
from ..messages import NAME, Fork, Forked, ForkMessage

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....agent.part import Wanted
    from ....machine.system import Limit


_MOST_PACKET = 1 << 16
_ANSWERS_S = 10.0  # most seconds for the fork of a rank


class ImportServerLink:
    """The agent's link to an import server, a process that imports modules and then forks ranks.

    Args:
        modules: names of the modules.
        first: the rank whose command and environment the server gets.
        standard: descriptors for the server's 0, 1 and 2.
        files_limit: limit of open files; see `System.spawn`.

    Attributes:
        is_auto: True if the user has not named the modules.
        is_early: True if the ranks are started later, so that files may have changed by then.

    Raises:
        OSError, SpawnError: the process cannot be started.

    """

    def __init__(
        self,
        modules: Sequence[str],
        first: Wanted,
        standard: Sequence[int],
        files_limit: Limit | None,
        *,
        is_auto: bool,
        is_early: bool,
    ) -> None:
        (rank, environ), self.first = first, first
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(_ANSWERS_S)
        since = time.time_ns() if is_early else 0
        order = f"{NAME}:{theirs.fileno()}:{'auto' * is_auto}:{since}:{','.join(modules)}"
        environ = {**environ, hook_environ.RUN_INSTEAD: order}
        theirs.set_inheritable(True)
        try:
            self.pid = system.spawn(
                Invocation(rank.argv, environ, rank.cwd, standard, rank.settings, files_limit)
            )
        except (OSError, SpawnError):
            self._connection.close()
            raise
        finally:
            theirs.close()
        self.importer = Importer(rank.process_id, self.pid)

    def watch(self, loop: Loop, on_message: Callable[[ForkMessage], object]) -> None:
        """Call `on_message` with each message, until the server says nothing more."""

        def read() -> None:
            message = self._receive()
            if message is None:  # its exit status says more
                loop.forget(self._connection.fileno())
            elif isinstance(message, ForkMessage):
                on_message(message)

        loop.watch(self._connection.fileno(), READ, lambda ready: read())

    def fork(self, order: Fork, descriptors: Sequence[int]) -> Forked:
        """Let the server fork a rank; return its answer.

        Raises:
            ConnectionError: the server has ended, or does not answer.

        """
        try:
            socket.send_fds(self._connection, [to_json(order).encode()], descriptors)
        except ConnectionError:
            raise
        except OSError as error:  # such as too large an environment
            return Forked(0, str(error.strerror))
        while isinstance(answer := self._receive(), str):  # its stack
            pass
        if not isinstance(answer, Forked):
            raise ConnectionError
        return answer

    def _receive(self) -> ForkMessage | str | None:
        """Return the next message, or the text of the server's stack; None for the end."""
        try:
            data = self._connection.recv(_MOST_PACKET)
        except OSError:
            return None
        if not data:
            return None
        text = data.decode("utf-8", "replace")
        if text.startswith('["'):
            try:
                return ForkMessage.of(text)
            except Malformed:
                pass
        self.importer.add_text(text)
        return text

    def kill(self) -> None:
        """Kill the server, which makes forked ranks children of this process at its end."""
        os.kill(self.pid, signal.SIGKILL)

    def reap(self, loop: Loop) -> None:
        """Wait for the server's end, and close the connection."""
        system.reap(self.pid)
        loop.forget(self._connection.fileno())
        self._connection.close()


class Importer(StackSource):
    """The server as a process that can be asked for its stack, which it sends in packets."""

    importing = True

    def add_text(self, text: str) -> None:
        """Record the server's stack, which arrives in one message."""
        *lines, end = text.splitlines()
        for line in lines:
            self._pieces.add(line)
        self.has_answered = end == END_OF_STACKS

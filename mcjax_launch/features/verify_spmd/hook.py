"""The gate before the first run of a program that spans processes: the launcher opens it.

Each thread that comes to it has a connection of its own to the agent, so that it can wait for its
answer by itself: no other thread, and no lock, stands between them.
"""

from __future__ import annotations

import os
import threading

from ...kernel.hook.part import RankPart
from ...kernel.wire import hook_environ
from ...kernel.wire.codec import Malformed, to_json
from ...kernel.wire.hook_messages import GateOpens, Hello, HookReply, ShowProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...kernel.hook.agent_link import AgentLink
    from ...kernel.wire.hook_messages import HookMessage, Program, ProgramText

# The launcher answers much sooner; if it cannot, the program goes on.
_LONGEST_S = 150
_CONNECT_S = 1


class Gate(RankPart):
    """Holds threads of this process, and not of its forks, until their programs may run."""

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        super().__init__(link, environ)
        self._of_thread = threading.local()

    def hold(self, program: Program, show: Callable[[], Iterable[ProgramText]]) -> bool:
        """Announce a program, and wait until it may run.

        An exception of the program's own (a signal's handler may raise one) ends the wait; the next
        call for this program waits on.

        Args:
            program: which.
            show: gives its text, if that is wanted.

        Returns:
            Whether it has been announced: there may be no agent any more.

        """
        if not self.link.is_of_this_process:
            return False
        try:
            line = self._line()
        except OSError:
            return False
        fingerprint = program.fingerprint
        if fingerprint not in line.announced:
            line.announced.add(fingerprint)
            line.send(program)
        while fingerprint not in line.opened:
            reply = line.receive()
            if reply is None:
                break
            if isinstance(reply, GateOpens):
                line.opened.add(reply.fingerprint)
            elif isinstance(reply, ShowProgram) and reply.fingerprint == fingerprint:
                for part in show():
                    line.send(part)
        line.opened.discard(fingerprint)
        line.announced.discard(fingerprint)
        return True

    def _line(self) -> _Line:
        """The connection of this thread."""
        line: _Line | None = getattr(self._of_thread, "line", None)
        if line is None:
            line = self._of_thread.line = _Line(self.environ[hook_environ.SOCKET])
            line.send(Hello(os.getpid(), self.environ.get("JAX_PROCESS_ID", ""), 0))
        return line


class _Line:
    """A thread's connection to the agent, and what has come over it.

    Raises:
        OSError: there is no agent.

    """

    def __init__(self, path: str) -> None:
        import _socket
        import select

        self.announced: set[str] = set()
        self.opened: set[str] = set()
        self._held = b""
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(_CONNECT_S)
        self._socket.connect(path)
        self._socket.settimeout(None)
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), select.POLLIN)

    def send(self, message: HookMessage) -> None:
        """Send a message; if the agent is gone, nowhere."""
        try:
            self._socket.sendall(to_json(message).encode("utf-8", "replace") + b"\n")
        except OSError:
            pass

    def receive(self) -> HookReply | None:
        """The next reply; None if there will be none."""
        while b"\n" not in self._held:
            # Whatever is raised here is the program's own, by a handler of a signal.
            if not self._poll.poll(_LONGEST_S * 1000):
                return None
            try:
                data = self._socket.recv(4096)
            except OSError:
                return None
            if not data:
                return None
            self._held += data
        first, _, self._held = self._held.partition(b"\n")
        try:
            return HookReply.of(first.decode("utf-8", "replace"))
        except Malformed:
            return None


PART = Gate

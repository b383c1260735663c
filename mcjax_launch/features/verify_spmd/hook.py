"""The gate before the first run of a program that spans processes: the launcher opens it.

Each thread that comes to it has a connection of its own to the agent, so that it can wait for its
answer by itself: no other thread, and no lock, stands between them.
"""

from __future__ import annotations

import threading

from ...kernel.hook.part import RankPart
from ...kernel.wire import hook_environ
from ...kernel.wire.hook_messages import GateOpens, HookReply, ShowProgram
from ...kernel.wire.line import AgentLine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...kernel.hook.agent_link import AgentLink
    from ...kernel.wire.hook_messages import Program, ProgramText

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
            reply = line.receive(HookReply, _LONGEST_S)
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

    def _line(self) -> _GateLine:
        """The connection of this thread."""
        line: _GateLine | None = getattr(self._of_thread, "line", None)
        if line is None:
            process_id = self.environ.get("JAX_PROCESS_ID", "")
            line = _GateLine(self.environ[hook_environ.SOCKET], process_id)
            self._of_thread.line = line
        return line


class _GateLine(AgentLine):
    """A thread's connection to the agent, and what has come over it."""

    def __init__(self, path: str, process_id: str) -> None:
        super().__init__(path, process_id, _CONNECT_S)
        self.announced: set[str] = set()
        self.opened: set[str] = set()


PART = Gate

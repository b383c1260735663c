"""The gate before the first run of a program that spans processes: the launcher opens it.

Each thread that comes to it has a connection of its own to the agent, so that it can wait for its
answer by itself: no other thread, and no lock, stands between them.
"""

from __future__ import annotations

import threading

from ....kernel.hook.part import RankPart
from ....kernel.wire import hook_environ
from ....kernel.wire.hook_messages import GateOpens, HookReply, ShowProgram
from ....kernel.wire.line import AgentLine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ....kernel.hook.agent_link import AgentLink
    from ....kernel.hook.part import ShownText
    from ....kernel.wire.hook_messages import Program

# The launcher answers much sooner; if it cannot, the program goes on.
_LONGEST_S = 150
_CONNECT_S = 1


class Gate(RankPart):
    """Holds threads of this process, and not of its forks, until their programs may run."""

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        super().__init__(link, environ)
        self._of_thread = threading.local()
        self._listener: _Listener | None = None

    def compiles(self, program: Program, keep: Callable[[], ShownText]) -> None:
        """Announce what this thread compiles, in which it may wait for others."""
        if not self.link.is_of_this_process:
            return
        if self._listener is None:
            try:
                self._listener = _Listener(self._connected())
            except OSError:
                return
        self._listener.compiles(program, keep())

    def compiled(self, program: Program) -> None:
        """Its text will not be wanted any more."""
        if self._listener is not None:
            self._listener.compiled(program)

    def hold(
        self, program: Program, show: ShownText, given: Callable[[], Iterable[tuple[Any, Any]]]
    ) -> bool:
        """Announce a program, and wait until it may run.

        An exception of the program's own (a signal's handler may raise one) ends the wait; the next
        call for this program waits on.

        Args:
            program: which.
            show: gives its text, if that is wanted.
            given: gives its arguments, each with the sharding that it has in the program.

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
            program = program.replaced(copies=_copies(given))
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
            line = self._of_thread.line = self._connected()
        return line

    def _connected(self) -> _GateLine:
        process_id = self.environ.get("JAX_PROCESS_ID", "")
        return _GateLine(self.environ[hook_environ.SOCKET], process_id)


def _copies(given: Callable[[], Iterable[tuple[Any, Any]]]) -> tuple[str, ...]:
    """The checksums of arguments; none with another JAX than we know: the program comes first."""
    from .checksums import checksums

    try:
        return checksums(given())
    except Exception:
        return ()


class _GateLine(AgentLine):
    """A thread's connection to the agent, and what has come over it."""

    def __init__(self, path: str, process_id: str) -> None:
        super().__init__(path, process_id, _CONNECT_S)
        self.announced: set[str] = set()
        self.opened: set[str] = set()


class _Listener:
    """Shows the code of what is being compiled: the thread that does so may be stuck in that.

    Args:
        line: to the agent; nobody else's.

    """

    def __init__(self, line: _GateLine) -> None:
        self._line = line
        self._sends = threading.Lock()
        self._texts: dict[str, ShownText] = {}
        threading.Thread(target=self._answer, name="mcjax-verify-spmd", daemon=True).start()

    def compiles(self, program: Program, show: ShownText) -> None:
        self._texts[program.fingerprint] = show
        with self._sends:
            self._line.send(program)

    def compiled(self, program: Program) -> None:
        self._texts.pop(program.fingerprint, None)

    def _answer(self) -> None:
        while (reply := self._line.receive(HookReply)) is not None:
            show = self._texts.get(reply.fingerprint)
            if isinstance(reply, ShowProgram) and show is not None:
                for part in show():
                    with self._sends:
                        self._line.send(part)


PART = Gate

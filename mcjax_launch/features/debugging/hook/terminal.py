"""The user's terminal, as long as a debugger in this process has it.

The launcher grants it to one debugger of the job at a time. Then a pseudo-terminal takes the place
of the descriptors 0 to 2, so that whatever a debugger does at a terminal works; its other end is
the agent's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from ....kernel.wire import hook_environ
from ....kernel.wire.line import AgentLine
from ..messages import (
    DebuggerQuits,
    DebuggerReply,
    DebuggerResumed,
    DebuggerStopped,
    DebuggerSwitches,
    TerminalGranted,
    TerminalRefused,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class TerminalDenied(Exception):
    """There is no terminal to be had, for this reason."""


class Terminal:
    """Gives the user's terminal to debuggers of this process, one at a time.

    Args:
        environ: of this process, as it was started; a forked rank's becomes its own.

    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._lock = threading.RLock()
        self._depth = 0
        self._held: _Standard | None = None
        self._pid = 0
        self._line: AgentLine | None = None

    def take(self, where: str, reason: str = "") -> str:
        """Wait until the terminal is this thread's, which may have it already.

        Args:
            where: the debugger has stopped.
            reason: it has.

        Returns:
            Why that cannot be; empty where it has it, and has to give it back.

        """
        self._lock.acquire()
        if self._depth == 0:
            try:
                self._hold(DebuggerStopped(where, reason))
            except BaseException as error:  # a Ctrl-C too
                self._lock.release()
                if isinstance(error, OSError):
                    return f"no terminal for the debugger at {where}: no agent: {error.strerror}"
                if isinstance(error, TerminalDenied):
                    return str(error)
                raise
        self._depth += 1
        return ""

    def give_back(self, *, steps: bool) -> None:
        """The debugger does not need the terminal now; `steps`: but it will soon."""
        self._depth -= 1
        if self._depth == 0 and self._held is not None:
            self._restore()
            self._connected().send(DebuggerResumed(steps))
        self._lock.release()

    @property
    def is_taken(self) -> bool:
        """Whether a debugger of this process has it."""
        return self._depth > 0

    @property
    def is_outermost(self) -> bool:
        """Whether the debugger that has it was not started by another one, which has it too."""
        return self._depth == 1

    def switch(self, rank: int) -> str:
        """Let a debugger of another rank have the terminal, until the user comes back.

        Returns:
            Why that cannot be; empty afterwards.

        """
        assert self._held is not None
        _flush()
        try:
            terminal, _ = self._ask(DebuggerSwitches(rank))
        except TerminalDenied as refused:
            return str(refused)
        os.close(terminal)  # it is the one that this process has
        return ""

    def quit(self, where: str) -> None:
        """The user ends the job here: give the terminal back, and wait for the end."""
        if self._held is not None:
            self._restore()
        line = self._connected()
        line.send(DebuggerQuits(where))
        while line.receive(DebuggerReply) is not None:
            pass

    def _hold(self, stopped: DebuggerStopped) -> None:
        _flush()  # what was printed before is shown before the prompt
        terminal, term = self._ask(stopped)
        try:
            self._held = _Standard(terminal, term)
        finally:
            os.close(terminal)

    def _ask(self, message: DebuggerStopped | DebuggerSwitches) -> tuple[int, str]:
        """Wait for the terminal: its descriptor, to be closed, and its TERM.

        Raises:
            TerminalDenied: it will not come.

        """
        line = self._connected()
        line.send(message)
        while (reply := line.receive(DebuggerReply)) is not None:
            if isinstance(reply, TerminalGranted) and line.descriptors:
                return line.descriptors.pop(0), reply.term
            if isinstance(reply, TerminalRefused):
                raise TerminalDenied(reply.reason)
        raise TerminalDenied("the launcher is gone")

    def _restore(self) -> None:
        held, self._held = self._held, None
        assert held is not None
        held.restore()

    def _connected(self) -> AgentLine:
        """The connection of this process, which may be a fork of the one that made another."""
        if self._line is None or self._pid != os.getpid():
            self._pid = os.getpid()
            process_id = self._environ.get("JAX_PROCESS_ID", "")
            self._line = AgentLine(self._environ[hook_environ.SOCKET], process_id)
        return self._line


class _Standard:
    """A terminal in place of the standard descriptors, and what was there."""

    def __init__(self, terminal: int, term: str) -> None:
        _flush()
        self._saved: list[int | None] = []
        for target in range(3):
            try:
                self._saved.append(os.dup(target))
            except OSError:  # the program has closed it
                self._saved.append(None)
            os.dup2(terminal, target)
        self._files = {name: getattr(sys, name) for name, _ in _STANDARD}
        for target, (name, mode) in enumerate(_STANDARD):
            if _descriptor(self._files[name]) != target:  # the program has put another there
                file = open(target, mode, buffering=1, closefd=False)  # noqa: SIM115
                setattr(sys, name, file)
        self._term = os.environ.get("TERM")
        os.environ["TERM"] = term

    def restore(self) -> None:
        """Put all back in its place."""
        _flush()
        for name, file in self._files.items():
            setattr(sys, name, file)
        for target, saved in enumerate(self._saved):
            if saved is None:
                os.close(target)
            else:
                os.dup2(saved, target)
                os.close(saved)
        if self._term is None:
            os.environ.pop("TERM", None)
        else:
            os.environ["TERM"] = self._term


def _flush() -> None:
    """Have what was printed come out where it belongs."""
    for name, mode in _STANDARD:
        if mode == "w":
            with contextlib.suppress(Exception):
                getattr(sys, name).flush()


def _descriptor(file: Any) -> int:
    try:
        return int(file.fileno())
    except Exception:  # none, closed, or the program's own
        return -1

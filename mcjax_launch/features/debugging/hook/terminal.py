"""User's terminal, while a debugger in this process has it.

The launcher grants it to one debugger of the job at a time. Then the terminal, opened by its name,
replaces the descriptors 0 to 2, so that everything works that a debugger does at a terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from ....wire import hook_environ
from ....wire.line import AgentLine
from ..messages import (
    DebuggerQuits,
    DebuggerReply,
    DebuggerResumed,
    DebuggerStopped,
    TerminalGranted,
    TerminalRefused,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class TerminalDenied(Exception):
    """Error: the terminal cannot be acquired, for this reason."""


class Terminal:
    """Access to the user's terminal for the debuggers of this process, one at a time.

    Args:
        environ: environment variables with which this process (or forked rank) was started.

    Attributes:
        passes: True after a refusal with which the program goes on.

    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.passes = False
        self._lock = threading.RLock()
        self._depth = 0
        self._held: _StreamReplacement | None = None
        self._pid = 0
        self._line: AgentLine | None = None

    def acquire(self, where: str, reason: str = "") -> str:
        """Wait until this thread has the terminal; it may have it already.

        Args:
            where: the line at which the debugger has stopped.
            reason: why it has stopped.

        Returns:
            the reason for a failure; "" if the thread has the terminal, and must call `release`
                later.

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

    def release(self, *, steps: bool) -> None:
        """Give the terminal up; `steps`: the debugger will soon need it again."""
        self._depth -= 1
        if self._depth == 0 and self._restore():
            self._get_connection().send(DebuggerResumed(steps))
        self._lock.release()

    @property
    def is_acquired(self) -> bool:
        """True if a debugger of this process has the terminal."""
        return self._depth > 0

    @property
    def is_outermost(self) -> bool:
        """True if a single debugger has it, not also a debugger that the first one has started."""
        return self._depth == 1

    def quit(self, where: str) -> None:
        """End the job as the user wants: give the terminal up, and wait for the end."""
        self._restore()
        line = self._get_connection()
        line.send(DebuggerQuits(where))
        while line.receive(DebuggerReply) is not None:
            pass

    def _hold(self, stopped: DebuggerStopped) -> None:
        _flush()  # so that earlier output precedes the prompt
        terminal, term = self._ask(stopped)
        try:
            self._held = _StreamReplacement(terminal, term)
        finally:
            os.close(terminal)

    def _ask(self, message: DebuggerStopped) -> tuple[int, str]:
        """Wait for the terminal and open it; return its descriptor, to be closed, and its TERM.

        Raises:
            TerminalDenied: it will not come.

        """
        line = self._get_connection()
        line.send(message)
        while (reply := line.receive(DebuggerReply)) is not None:
            if isinstance(reply, TerminalGranted):
                try:
                    return os.open(reply.path, os.O_RDWR | os.O_NOCTTY), reply.term
                except OSError as error:  # of another user, or out of a container's sight
                    line.send(DebuggerResumed())
                    raise TerminalDenied(
                        f"no terminal for the debugger at {message.where}: {reply.path}: "
                        f"{error.strerror}; -m debugpy --listen PORT --wait-for-client needs none"
                    ) from None
            if isinstance(reply, TerminalRefused):
                self.passes = reply.passes
                raise TerminalDenied(reply.reason)
        raise TerminalDenied("the launcher is gone")

    def _restore(self) -> bool:
        """Give this process its own streams back; return False if it has them already."""
        held, self._held = self._held, None
        if held is not None:
            held.restore()
        return held is not None

    def _get_connection(self) -> AgentLine:
        """Return the connection of this process; a fork makes a connection of its own."""
        if self._line is None or self._pid != os.getpid():
            self._pid = os.getpid()
            process_id = self._environ.get("JAX_PROCESS_ID", "")
            self._line = AgentLine(self._environ[hook_environ.SOCKET], process_id)
        return self._line


class _StreamReplacement:
    """Replacement of descriptors 0 to 2 by a terminal, with the originals to restore."""

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
            if _get_descriptor(self._files[name]) != target:  # the program has replaced it
                file = open(target, mode, buffering=1, closefd=False)  # noqa: SIM115
                setattr(sys, name, file)
        self._term = os.environ.get("TERM")
        os.environ["TERM"] = term

    def restore(self) -> None:
        """Restore the original descriptors, files and TERM."""
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
    """Flush stdout and stderr before they lead to another file."""
    for name, mode in _STANDARD:
        if mode == "w":
            with contextlib.suppress(Exception):
                getattr(sys, name).flush()


def _get_descriptor(file: Any) -> int:
    try:
        return int(file.fileno())
    except Exception:  # none, closed, or the program's own
        return -1

"""The programs of ranks that run under another command: which process it is, and how it ended."""

from __future__ import annotations

import os
import signal

from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .system.interface import Watched

# As which a framework build of Python for macOS, such as Homebrew's, shows however it was started.
_FRAMEWORK = "Python"


class WrappedPrograms:
    """Finds them by what their hooks say, and asks the system for their exit statuses.

    A wrapper may swallow the status (gdb, py-spy), and is the only one who could wait for it.

    Args:
        commands: of each wrapped rank, without its wrapper.

    """

    def __init__(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._commands = commands
        self._found: dict[int, tuple[int, Watched]] = {}  # rank -> its program

    def is_program(self, rank: int, pid: int) -> bool:
        """Whether a Python process of a rank is its program, and not a helper."""
        if rank not in self._found and rank in self._commands and self._runs(rank, pid):
            self._found[rank] = pid, system.watched(pid)
        return rank in self._found and self._found[rank][0] == pid

    def pid(self, rank: int) -> int | None:
        """The program of a rank, as far as it is known."""
        return self._found[rank][0] if rank in self._found else None

    def ended(self) -> set[int]:
        """The ranks whose program is over, while their wrapper still writes what it has seen."""
        return {rank for rank, (_, program) in self._found.items() if program.ended()}

    def status(self, rank: int, wrappers: int, sent: Sequence[int]) -> int:
        """How a rank has ended, now that its wrapper has: an exit status, or minus a signal.

        Args:
            rank: of this host.
            wrappers: the wrapper's own end, which counts if nothing else is known.
            sent: the signals that have asked the rank to end.

        """
        own = self._own_status(rank)
        if own is None:
            own = wrappers
        if own == -signal.SIGKILL and wrappers not in (0, -signal.SIGTERM):
            own = wrappers  # gdb has killed it when it left, and ends by the signal that it showed
        if own == -signal.SIGKILL and sent:
            return -sent[0]  # which has ended the wrapper, and so its program
        return own

    def _own_status(self, rank: int) -> int | None:
        found = self._found.pop(rank, None)
        return found[1].let_go() if found is not None else None

    def _runs(self, rank: int, pid: int) -> bool:
        """Whether a process runs the rank's command, or a script that this names."""
        words = system.command(pid)
        name, *arguments = self._commands[rank]
        at = len(words) - len(arguments) - 1
        names = (os.path.basename(name), _FRAMEWORK)
        return at >= 0 and os.path.basename(words[at]) in names and words[at + 1 :] == arguments

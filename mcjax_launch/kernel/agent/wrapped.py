"""The programs of ranks that run under another command: which process it is."""

from __future__ import annotations

import os

from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# As which a framework build of Python for macOS, such as Homebrew's, shows however it was started.
_FRAMEWORK = "Python"


class WrappedPrograms:
    """Finds them by what their hooks say.

    Args:
        commands: of each wrapped rank, without its wrapper.

    """

    def __init__(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._commands = commands
        self._found: dict[int, int] = {}  # rank -> the pid of its program

    def is_program(self, rank: int, pid: int) -> bool:
        """Whether a Python process of a rank is its program, and not a helper."""
        if rank not in self._found and rank in self._commands and self._runs(rank, pid):
            self._found[rank] = pid
        return self.pid(rank) == pid

    def pid(self, rank: int) -> int | None:
        """The program of a rank, as far as it is known."""
        return self._found.get(rank)

    def _runs(self, rank: int, pid: int) -> bool:
        """Whether a process runs the rank's command, or a script that this names."""
        words = system.command(pid)
        name, *arguments = self._commands[rank]
        at = len(words) - len(arguments) - 1
        names = (os.path.basename(name), _FRAMEWORK)
        return at >= 0 and os.path.basename(words[at]) in names and words[at + 1 :] == arguments

"""How any Unix supervises (macOS)."""

from __future__ import annotations

import os

from . import unix
from .unix import ended_child, group_of, reap, signal_group, signal_process, status_of

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...protocol.ulimits import Limit
    from .interface import OutOfMemory, Process, Watched

__all__ = [
    "adopt_orphans",
    "blocked_in",
    "command",
    "cores",
    "descendants",
    "describe",
    "ended_child",
    "ending",
    "forks_ranks",
    "group_of",
    "handles",
    "machine",
    "main_thread",
    "out_of_memory",
    "processes",
    "reap",
    "rename",
    "signal_group",
    "signal_process",
    "spawn",
    "status_of",
    "watched",
]

forks_ranks = False


def rename(name: str) -> None:
    """Nothing: the command line stays as it is."""


def adopt_orphans() -> None:
    """Nothing: orphans go to the system."""


def machine() -> str:
    """The same for two agents if and only if loopback is the same for both."""
    return os.uname().nodename


def cores() -> list[list[int]]:
    """None: nothing binds processes to cores."""
    return []


def spawn(
    argv: Sequence[str],
    env: dict[str, str],
    cwd: str,
    standard: Sequence[int],
    cores: Sequence[int] | None = None,
    files_limit: Limit | None = None,
) -> int:
    """Start a process in a session of its own; see `interface.System`."""
    return unix.spawn(argv, env, cwd, standard, files_limit)


def out_of_memory() -> OutOfMemory:
    """Nobody tells."""
    return _NobodyTells()


class _NobodyTells:
    def evidence(self, pid: int) -> None:
        return None


def ending(processes: dict[int, int]) -> frozenset[int]:
    """None that can be seen."""
    return frozenset()


def watched(pid: int) -> Watched:
    """A process that is not a child."""
    return _Unseen()


class _Unseen:
    def ended(self) -> bool:
        return False

    def let_go(self) -> None:
        return None


def handles(pid: int, signum: int) -> bool:
    """Whether it does; nobody knows."""
    return False


def descendants() -> list[int]:
    """None that can be seen."""
    return []


def processes() -> list[Process]:
    """None that can be seen."""
    return []


def main_thread(pid: int) -> tuple[float, int]:
    """Not known."""
    return 0.0, 0


def command(pid: int) -> list[str]:
    """Not known."""
    return []


def describe(pid: int) -> str:
    """A process for a person."""
    return "nothing more is known"


def blocked_in(pid: int) -> str:
    """Not known."""
    return ""

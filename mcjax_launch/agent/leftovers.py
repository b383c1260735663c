"""Processes that outlive the ranks that have started them."""

from __future__ import annotations

from ..wire import hook_environ
from ..wire.messages import Leftover
from .system import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from .system.unix import HostProcess


def find_rank(
    process: HostProcess | None, found: Mapping[int, HostProcess], ranks: Mapping[int, int]
) -> int | None:
    """Return the rank to which a process belongs; None if it belongs to none.

    Args:
        process: the process; None if it is gone.
        found: all processes of this host, by pid.
        ranks: rank of each rank's own process, which also leads the rank's session, by pid.

    """
    while process is not None:
        rank = ranks.get(process.pid, ranks.get(process.session))
        if rank is not None:
            return rank
        process = found.get(process.parent)
    return None


# Parts of the commands of multiprocessing's own processes, which end by themselves. The first
# removes shared memory of ended processes.
_TRACKER, _FORK_SERVER = "resource_tracker import main", "forkserver import main"
# Characters of a command to report.
_LONGEST = 200


class Leftovers:
    """Finder of the processes that ranks have left behind.

    Args:
        pids: rank of each rank's own process that still runs, by pid.

    Attributes:
        found: processes that run a program of the user's, without their children.
        older_groups: process groups that were there before the ranks, and are no rank's.

    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self.found: tuple[Leftover, ...] = ()
        self.older_groups: set[int] = set()
        self._ended: dict[int, int] = {}  # ranks by the pids of their own processes

    def record_end(self, rank: int, pid: int) -> None:
        """Record that a rank's own process has been reaped."""
        self._ended[pid] = rank

    def find(self, pids: Collection[int]) -> None:
        """Set `found` to those of these processes to report."""
        pids = [pid for pid in pids if system.get_process_group(pid) not in self.older_groups]
        processes = {process.pid: process for process in system.list_processes()}
        commands = {pid: " ".join(system.read_command(pid)) for pid in pids if pid in processes}
        own = {pid for pid, command in commands.items() if command}
        own -= {pid for pid in own if _TRACKER in commands[pid] or _FORK_SERVER in commands[pid]}
        own -= system.select_ending({pid: pid for pid in own})
        self.found = tuple(
            Leftover(self._find_rank(pid, processes), pid, commands[pid][:_LONGEST])
            for pid in sorted(own)
            if processes[pid].parent not in own
        )

    def list_of_rank(self, rank: int, pids: Iterable[int]) -> list[int]:
        """Return those of these processes that a rank has started."""
        processes = {process.pid: process for process in system.list_processes()}
        return [pid for pid in pids if pid in processes and self._find_rank(pid, processes) == rank]

    def _find_rank(self, pid: int, processes: Mapping[int, HostProcess]) -> int | None:
        """Return the rank of a process by its session or parents, else by its environment."""
        rank = find_rank(processes[pid], processes, {**self._ended, **self._pids})
        environ = system.read_environ(pid) if rank is None else {}
        if hook_environ.RUN_INSTEAD in environ:  # a fork has the import server's environment
            return None
        said = environ.get("JAX_PROCESS_ID", "")
        return int(said) if said.isdecimal() else rank


def is_tracker(pid: int) -> bool:
    """Return whether a process is a resource tracker of multiprocessing or joblib."""
    return any(_TRACKER in word for word in system.read_command(pid))

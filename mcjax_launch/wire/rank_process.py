"""Settings of a rank's process, such as cores, applied alike if it is spawned or forked."""

from __future__ import annotations

import os
import time

from .codec import Nested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Prctl = Callable[..., int]

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9

# Without privileges the kernel changes one group in 0.1 s.
_MOST_TRIES, _TRY_EVERY_S = 200, 0.02


class RankSettings(Nested):
    """Settings of a rank's process. To add one, add a field, and a line in `apply`.

    Every rank gets them with its order (`messages.RankOrder`), whether the agent spawns its process
    or the import server forks it.

    Args:
        cores: numbers of the hardware threads on which the rank may run; () for all.
        nice: least nice value of the rank; a higher inherited value is kept.

    """

    cores: tuple[int, ...] = ()
    nice: int = 0

    def apply(self, pid: int = 0) -> None:
        """Apply the settings to the process `pid`; 0 is this process.

        Raises:
            OSError: the system refuses a setting.

        """
        if self.cores:
            os.sched_setaffinity(pid, self.cores)
        if self.nice:
            lower_priority(pid, self.nice)


#: Settings of a process that is not a rank.
PLAIN = RankSettings()


def lower_priority(pid: int, nice: int) -> None:
    """Raise a process's nice value to `nice` at least, and set its session's to `nice`.

    Linux compares nice values of processes only within a session, and those of sessions with each
    other (see sched(7)); each rank has its own session.
    """
    os.setpriority(os.PRIO_PROCESS, pid, max(os.getpriority(os.PRIO_PROCESS, pid), nice))
    for _ in range(_MOST_TRIES):
        try:
            with open(f"/proc/{pid or 'self'}/autogroup", "w") as file:
                file.write(str(nice))
        except BlockingIOError:
            time.sleep(_TRY_EVERY_S)
            continue
        except OSError:  # this system has no autogroups
            pass
        return


def die_with_parent(parent: int, prctl: Prctl) -> None:
    """Have the kernel kill this process when its parent ends; kill it now if that has ended.

    Args:
        parent: pid of the parent.
        prctl: function `prctl` of the C library.

    """
    prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), _SIGKILL)

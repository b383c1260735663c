"""Settings of a rank's process, such as cores, applied alike if it is spawned or forked."""

from __future__ import annotations

import os

from .codec import Nested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Prctl = Callable[..., int]

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


class RankSettings(Nested):
    """Settings of a rank's process. To add one, add a field, and a line in `apply`.

    Every rank gets them with its order (`messages.RankOrder`), whether the agent spawns its process
    or the import server forks it.

    Args:
        cores: numbers of the hardware threads on which the rank may run; () for all.

    """

    cores: tuple[int, ...] = ()

    def apply(self, pid: int = 0) -> None:
        """Apply the settings to the process `pid`; 0 is this process.

        Raises:
            OSError: the system refuses a setting.

        """
        if self.cores:
            os.sched_setaffinity(pid, self.cores)


#: Settings of a process that is not a rank.
PLAIN = RankSettings()


def die_with_parent(parent: int, prctl: Prctl) -> None:
    """Have the kernel kill this process when its parent ends; kill it now if that has ended.

    Args:
        parent: pid of the parent.
        prctl: function `prctl` of the C library.

    """
    prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), _SIGKILL)

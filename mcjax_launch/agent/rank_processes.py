"""The processes of ranks among those of this host."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Mapping

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

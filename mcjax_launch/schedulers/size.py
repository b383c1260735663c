"""How big a job is, for a scheduler that is to find room for it; a value."""

from dataclasses import dataclass

from mcjax_launch.job.job import GRACE_S


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a scheduler must know about a job.

    Args:
        hosts: nodes, or pods.
        ranks: on each of them.
        gpus: on each of them; 0 for none.
        seconds: the longest that the job may take; None for no limit.
        grace: seconds from asking its ranks to exit to killing them.
        restarts: how often it may be started again.
        can_shrink: it may then run on fewer hosts.

    """

    hosts: int
    ranks: int
    gpus: int = 0
    seconds: float | None = None
    grace: float = GRACE_S["TERM"]
    restarts: int = 0
    can_shrink: bool = False

"""How big a job is, for an engine that is to find room for it; pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Size:
    """What an engine has to know of a job.

    Args:
        hosts: nodes, or pods.
        ranks: on each of them.
        gpus: on each of them; 0 for none.
        seconds: the longest that the job may take; None for no limit.
        restarts: how often it may be started again.
        goes_on: it can do with fewer hosts then.

    """

    hosts: int
    ranks: int
    gpus: int = 0
    seconds: float | None = None
    restarts: int = 0
    goes_on: bool = False

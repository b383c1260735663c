"""Results: those of one attempt, and that of the launcher's whole work."""

from __future__ import annotations

from mcjax_launch.diagnosis.summary import Summary
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.runs.state import RunState


class Attempt(Value):
    """The result of an attempt that is over.

    Args:
        restart: how many times the job had been started before.
        hosts: their names, in order.
        seconds: how long the attempt took.

    """

    restart: int
    hosts: tuple[str, ...]
    seconds: float
    state: RunState
    summary: Summary


class JobOutcome(Value):
    """The end of the launcher's whole work.

    Args:
        status: the launcher's exit status.
        message: how the job ended, in one line.
        failed_early: a rank failed, and no rank had joined the JAX job.
        ends_all: a signal, or the loss of the output's reader, has ended it: --watch ends too.

    """

    status: int
    message: str
    failed_early: bool = False
    ends_all: bool = False

"""What is over: one run of a job, and the launcher's whole work."""

from __future__ import annotations

from mcjax_launch.diagnosis.summary import Summary
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.runs.state import RunState


class Attempt(Value):
    """A run that is over.

    Args:
        restart: how many times the job had been started before.
        hosts: their names, in order.
        seconds: how long it took.

    """

    restart: int
    hosts: tuple[str, ...]
    seconds: float
    state: RunState
    summary: Summary


class JobOutcome(Value):
    """How the launcher's whole work ended.

    Args:
        status: the exit status.
        message: in one line.
        failed_early: a rank failed, and no rank had joined the JAX job.
        ends_all: a signal, or the loss of the output's reader, has ended it: --watch ends too.

    """

    status: int
    message: str
    failed_early: bool = False
    ends_all: bool = False

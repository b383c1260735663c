"""The facts that end an attempt, and the whole job with its restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.summary import Summary
from mcjax_launch.wire.value import Value


class Attempt(Value):
    """The result of a finished attempt.

    Args:
        restart: number of earlier attempts.
        hosts: names of the hosts, in order.
        seconds: duration of the attempt.
        program_checksums: checksums of PROGRAM's source on hosts, by the host's name, if known.

    """

    restart: int
    hosts: tuple[str, ...]
    seconds: float
    state: RunState
    summary: Summary
    program_checksums: Mapping[str, str] = MappingProxyType({})


class JobOutcome(Value):
    """The outcome of a job, after its last attempt.

    Args:
        status: exit status of the launcher.
        message: description of the job's end, in one line.
        failed_early: True if a rank failed before any rank had joined the JAX job.
        program: PROGRAM and its arguments, for a job that could not begin.

    """

    status: int
    message: str
    failed_early: bool = False
    program: Sequence[str] = ()

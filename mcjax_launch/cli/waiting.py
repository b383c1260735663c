"""--wait: the end of a detached job, as one JSON object."""

from __future__ import annotations

import json
import sys

from mcjax_launch.cli.listing import collect_fields
from mcjax_launch.detached.connection import open_connection
from mcjax_launch.detached.jobs import find, wait_until_settled
from mcjax_launch.wire import exit_status


def wait(job_id: str, limit_s: float | None) -> int:
    """Wait until a job has ended and print it; return its exit status, or 124 after the limit.

    Args:
        job_id: id of the detached job, or its first digits.
        limit_s: the longest time to wait, in seconds; None for no limit.

    Raises:
        LaunchError: there is no such job, or its launcher is on another machine or does not answer.

    """
    job = find(job_id)
    if connection := open_connection(job, "wait"):
        has_ended = connection.wait_for_end(limit_s)
        connection.close()
        job = wait_until_settled(job) if has_ended else job.read_again()
    sys.stdout.write(f"{json.dumps(collect_fields(job))}\n")
    status = job.exit_status
    return exit_status.TIMED_OUT if status is None else status

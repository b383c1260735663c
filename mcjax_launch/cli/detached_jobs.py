"""--attach, --stop and --wait: what a user does with a detached job."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

from mcjax_launch.cli.listing import collect_fields
from mcjax_launch.detached.jobs import RUNNING, find
from mcjax_launch.detached.output import read
from mcjax_launch.wire import exit_status

_LOOK_S = 0.2

Say = Callable[[str], object]


def attach(job_id: str, say: Say) -> int:
    """Show what a job prints until it ends; Ctrl-C leaves it running. Return the exit status.

    Raises:
        LaunchError: there is no such job, or it runs on another machine.

    """
    job = find(job_id)
    job.signal(0, "attach")
    signal.signal(signal.SIGQUIT, lambda *_: job.signal(signal.SIGQUIT, "attach"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = sys.stdout.fileno()
    try:
        for text in read(job.folder, whole=not os.isatty(out)):
            if text:
                os.write(out, text)
            elif job.state != RUNNING:
                break
            else:
                time.sleep(_LOOK_S)
                job = job.wait(0.0)
    except KeyboardInterrupt:
        say(f"job {job.id} continues: --attach {job.id} returns to it, --stop {job.id} ends it")
        return exit_status.compute_signal_status(signal.SIGINT)
    end = job.end
    assert end is not None
    say(f"job {job.id} is {job.state}, exit status {end.exit_status}: {end.message}")
    return end.exit_status


def stop(job_id: str, say: Say) -> int:
    """End a job as Ctrl-C would, and wait until it has ended; return 0.

    Raises:
        LaunchError: there is no such job, or it runs on another machine.

    """
    job = find(job_id)
    if job.state == RUNNING:
        job.signal(signal.SIGINT, "stop")
        say(f"job {job.id} is ending; --stop {job.id} again kills its ranks at once")
        job = job.wait(None)
    say(f"job {job.id}: {job.end.message if job.end else job.state}")
    return 0


def wait(job_id: str, limit_s: float | None) -> int:
    """Wait until a job has ended and print it; return its exit status, or 124 after the limit.

    Raises:
        LaunchError: there is no such job, or it runs on another machine.

    """
    job = find(job_id)
    job.signal(0, "wait")
    job = job.wait(limit_s)
    sys.stdout.write(f"{json.dumps(collect_fields(job))}\n")
    return exit_status.TIMED_OUT if job.end is None else job.end.exit_status

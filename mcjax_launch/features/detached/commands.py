"""--attach, --jobs, --stop and --wait: what a user does with a detached job."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import sys
from collections.abc import Callable, Set

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached.jobs import LOST, RUNNING, DetachedJob, find
from mcjax_launch.features.detached.listing import collect_fields, list_jobs
from mcjax_launch.features.detached.options import DetachedOptions, find_action
from mcjax_launch.features.detached.output import read
from mcjax_launch.options.options import Options
from mcjax_launch.wire import exit_status

# Between two looks at a file that nothing announces.
_LOOK_MS = 200

# The actions, and of each the options that make a difference.
_ACTIONS = {
    "attach": frozenset({"quiet"}),
    "jobs": frozenset({"json"}),
    "stop": frozenset[str](),
    "wait": frozenset({"timeout"}),
}
# Options of --detach that people may give to --attach, where they come too late.
_OUTPUT = frozenset({"show", "collapse", "timestamps", "no_prefix", "verbose"})

Say = Callable[[str], object]


def act(options: Options, given: Set[str], say: Say) -> int:
    """Carry out the given one of --attach, --jobs, --stop and --wait; return the exit status.

    Args:
        options: all options.
        given: names of the options on the command line.
        say: prints a line.

    Raises:
        LaunchError: there is a PROGRAM, an option without effect, or no such job; or the job runs
            on another machine.

    """
    late, own = _check(options, given), DetachedOptions.of(options)
    match find_action(options):
        case "jobs":
            return list_jobs(as_json=own.json)
        case "stop":
            return stop(own.stop or "", say)
        case "wait":
            return wait(own.wait or "", options.timeout if "timeout" in given else None)
    if late and not options.quiet:
        say(f"--attach shows what the job has written: give {' and '.join(late)} to --detach")
    return attach(own.attach or "", say, quiet=options.quiet)


def _check(options: Options, given: Set[str]) -> list[str]:
    """Refuse options without effect; return those on output, with which --attach works anyhow."""
    name = find_action(options)
    if options.program:
        raise LaunchError(f"--{name} runs no PROGRAM: leave out {options.program[0]}, or --{name}")
    late = sorted(given & _OUTPUT) if name == "attach" else []
    for other in sorted(given - _ACTIONS[name] - {name, "program", *late}):
        raise LaunchError(f"--{name} cannot be combined with --{other.replace('_', '-')}")
    return [f"--{other.replace('_', '-')}" for other in late]


def attach(job_id: str, say: Say, *, quiet: bool) -> int:
    """Show what a job prints until it ends; Ctrl-C leaves it running. Return the exit status.

    Args:
        job_id: id of the job, or its first digits; "" for the running job started last, or any.
        say: prints a line.
        quiet: True to print no line on a job that has ended by itself.

    Raises:
        LaunchError: there is no such job, or it runs on another machine.

    """
    job = find(job_id)
    job.signal(0, "attach")
    if not job_id and not quiet:
        say(f"job {job.id}, {job.state}: {shlex.join(job.description.program)}")
    signal.signal(signal.SIGQUIT, lambda *_: job.signal(signal.SIGQUIT, "attach"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        job = _follow(job, sys.stdout.fileno())
    except KeyboardInterrupt:
        say(
            f"job {job.id} continues: mcjax-launch --attach {job.id} returns to it, "
            f"mcjax-launch --stop {job.id} ends it"
        )
        return exit_status.compute_signal_status(signal.SIGINT)
    except BrokenPipeError:
        return exit_status.READER_GONE
    end = job.end
    assert end is not None
    if job.state == LOST:
        say(f"job {job.id} is lost: {end.message}")
    elif not quiet:
        say(f"job {job.id} has ended with exit status {end.exit_status}")
    if end.dropped:
        say(f"job {job.id}: {end.dropped}")
    return end.exit_status


def _follow(job: DetachedJob, out: int) -> DetachedJob:
    """Copy what a job prints to a descriptor until it has ended; return the job as it is then.

    Raises:
        BrokenPipeError: nothing reads the descriptor any more.

    """
    reader = select.poll()
    reader.register(out, 0)  # its end alone
    is_over = False
    for text in read(job.folder, whole=not os.isatty(out)):
        if text:
            while text:
                text = text[os.write(out, text) :]
        elif is_over:
            break
        elif job.state != RUNNING:
            is_over = True  # what it has printed since the last look is still to come
        elif reader.poll(_LOOK_MS):
            raise BrokenPipeError
        else:
            job = job.wait(0.0)
    return job


def stop(job_id: str, say: Say) -> int:
    """End a job as Ctrl-C would, and wait until it has ended; return 0.

    Raises:
        LaunchError: there is no such job, or it runs on another machine.

    """
    job = find(job_id)
    if job.state != RUNNING:
        assert job.end is not None
        say(f"job {job.id} has already ended: {job.end.message}")
        return 0
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

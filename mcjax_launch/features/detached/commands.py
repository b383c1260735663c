"""--attach, --jobs, --stop and --wait: what a user does with a detached job."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence, Set

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached.jobs import (
    ENDED,
    LOST,
    RUNNING,
    DetachedJob,
    find,
    find_all_jobs,
)
from mcjax_launch.features.detached.output import read, read_last_line
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.wire import exit_status
from mcjax_launch.wording import cut_end, escape_unprintable

# Between two looks at a file that nothing announces.
_LOOK_MS = 200
# Of each action the options that make a difference.
_EFFECTIVE = {"attach": {"quiet"}, "jobs": {"json"}, "stop": set[str](), "wait": {"timeout"}}
# Options of --detach that people may give to --attach, where they come too late.
_LATE = {"show", "collapse", "timestamps", "no_prefix", "verbose"}

Say = Callable[[str], object]


def act(name: str, options: Options, given: Set[str], say: Say) -> int:
    """Carry out --attach, --jobs, --stop or --wait; return the exit status.

    Args:
        name: the option, without its dashes.
        options: all options.
        given: names of the options on the command line.
        say: prints a line.

    Raises:
        LaunchError: there is a PROGRAM, an option without effect, or no such job; or the job runs
            on another machine.

    """
    if options.program:
        raise LaunchError(f"--{name} runs no PROGRAM: leave out {options.program[0]}, or --{name}")
    late = given & _LATE if name == "attach" else set[str]()
    for other in sorted(given - _EFFECTIVE[name] - {name, "program"} - late):
        raise LaunchError(f"--{name} cannot be combined with {_format_option(other)}")
    if late and not options.quiet:
        names = " and ".join(map(_format_option, sorted(late)))
        say(f"--attach shows what the job has written: give {names} to --detach")
    if name == "jobs":
        return list_jobs(as_json=bool(declared.get(options, "json")))
    job = find(job_id := declared.get(options, name))
    if name == "attach":
        if not job_id and not options.quiet:
            say(f"job {job.id}, {job.state}: {shlex.join(job.program)}")
        return attach(job, say, quiet=options.quiet)
    if name == "stop":
        return stop(job, say)
    return wait(job, options.timeout if "timeout" in given else None)


def _format_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def attach(job: DetachedJob, say: Say, *, quiet: bool) -> int:
    """Show what a job prints until it ends; Ctrl-C leaves it running. Return the exit status.

    Args:
        job: the job.
        say: prints a line.
        quiet: True to print no line on a job that has ended by itself.

    Raises:
        LaunchError: the job runs on another machine.

    """
    job.signal(0, "attach")
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
    if job.state == LOST:
        say(f"job {job.id} is lost: {job.message}")
    elif not quiet:
        say(f"job {job.id} has ended with exit status {job.exit_status}")
    return job.exit_status or 0


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


def stop(job: DetachedJob, say: Say) -> int:
    """End a job as Ctrl-C would, and wait until it has ended; return 0.

    Raises:
        LaunchError: the job runs on another machine.

    """
    if job.state != RUNNING:
        say(f"job {job.id} has already ended: {job.message}")
        return 0
    job.signal(signal.SIGINT, "stop")
    say(f"job {job.id} is ending; --stop {job.id} again kills its ranks at once")
    say(f"job {job.id}: {job.wait(None).message}")
    return 0


def wait(job: DetachedJob, limit_s: float | None) -> int:
    """Wait until a job has ended and print it; return its exit status, or 124 after the limit.

    Raises:
        LaunchError: the job runs on another machine.

    """
    job.signal(0, "wait")
    job = job.wait(limit_s)
    sys.stdout.write(f"{json.dumps(collect_fields(job))}\n")
    return exit_status.TIMED_OUT if job.exit_status is None else job.exit_status


# --- the list ---

_COLUMNS = ("ID", "STATE", "RANKS", "HOSTS", "SINCE", "PROGRAM", "LAST LINE")
# Characters: a terminal has room for the last line too.
_MOST_PROGRAM, _MOST_HOSTS = 20, 16


def list_jobs(*, as_json: bool) -> int:
    """Print the detached jobs, as a table or as JSON lines; return the exit status.

    Raises:
        LaunchError: the folder of the jobs cannot be read, or is open to other users.

    """
    jobs = find_all_jobs()
    if as_json:
        sys.stdout.write("".join(f"{json.dumps(collect_fields(job))}\n" for job in jobs))
    elif not jobs:
        sys.stderr.write("mcjax-launch: no detached jobs: --detach starts one\n")
    else:
        # Of a file or a pipe the lines are not cut.
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        lines = format_table([_COLUMNS, *map(_format_row, jobs)])
        sys.stdout.write("".join(f"{line[:width]}\n" for line in lines))
    return 0


def collect_fields(job: DetachedJob) -> dict[str, object]:
    """Return the fields that --json prints for a job."""
    own = ("id", "program", "state", "exit_status", "message", "ranks", "hosts", "since")
    return {
        **{name: getattr(job, name) for name in own},
        "last_line": read_last_line(job.folder),
        "launcher_host": job.launcher_host,
        "launcher_pid": job.pid if job.is_reachable else None,
    }


def _format_row(job: DetachedJob) -> list[str]:
    state, words = job.state, job.message if job.exit_status else ""
    if state == RUNNING and not job.is_here:
        state, words = "unknown", f"its launcher is on {job.launcher_host}"
    elif state == ENDED:
        state = f"{state} ({job.exit_status})"
    return [
        job.id,
        state,
        str(job.ranks),
        cut_end(escape_unprintable(",".join(job.hosts)), _MOST_HOSTS),
        _format_since(job.since),
        cut_end(escape_unprintable(shlex.join(job.program)), _MOST_PROGRAM),
        escape_unprintable(words or read_last_line(job.folder)),
    ]


def _format_since(at: float) -> str:
    began = time.localtime(at)
    today = time.localtime()[:3] == began[:3]
    return time.strftime("%H:%M:%S" if today else "%m-%d %H:%M", began)


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([word.ljust(width) for word, width in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(words).rstrip() for words in padded]

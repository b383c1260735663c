"""Options to start, show, list and end detached jobs, and what --detach means for a job."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.kinds import Kind
from mcjax_launch.options.option import TERMINAL, OptionGroup, declare_flag, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.launcher.front import Front
    from mcjax_launch.options.features import Where
    from mcjax_launch.options.options import Options

#: The variable with the job's id in a launcher that --detach has started.
ID = "_MCJAX_LAUNCH_DETACHED"
ADVISED = {
    "use --jobs: it lists the detached jobs": "ps list ls",
    "use --attach [ID]: it shows a detached job, and follows it": "follow tail",
    "use --attach [ID] for a detached job's lines; --log-dir DIR keeps each rank's output": "logs",
    "use --stop ID: it ends a detached job": "kill cancel",
    "use --detach: the job needs no terminal then": "background daemon bg",
}
COMMANDS = {
    "start": "leave it out; --detach leaves the job running",
    **dict.fromkeys(("stop", "kill"), "use --stop ID"),
    **dict.fromkeys(("ps", "ls"), "--jobs lists the detached jobs"),
    **dict.fromkeys(("list", "jobs", "status"), "use --jobs"),
    **dict.fromkeys(("logs", "attach"), "use --attach [ID]"),
    "wait": "use --wait ID",
}
REMINDER = "--detach leaves a job to --jobs, --attach, --wait and --stop"


def parse_job(value: Any) -> str:
    """Read the id of a detached job, or its first digits."""
    if not re.fullmatch("[0-9a-f]{1,8}", str(value)):
        raise ValueError(f"{value!r} is not the id of a detached job: --jobs lists them")
    return str(value)


def offer_jobs() -> Iterator[tuple[str, str]]:
    """Yield the id of each job for a shell to complete, with its state and program."""
    from mcjax_launch.features.detached.jobs import find_all_jobs

    with contextlib.suppress(LaunchError):
        for job in reversed(find_all_jobs()):
            yield job.id, f"{job.state}: {' '.join(job.program)}"


JOB = Kind(parse_job, "ID", offers=offer_jobs, listed_by="--jobs")
LATEST_JOB = Kind(
    lambda value: value and parse_job(value),
    "[ID]",
    offers=offer_jobs,
    follows=lambda word: not word.startswith("-"),
    omitted="",
)


class DetachedOptions(
    OptionGroup,
    title="Detached jobs",
    example=(
        "A job that outlives the terminal; --attach shows it again, --jobs lists it:",
        "mcjax-launch --detach -n 4 train.py",
    ),
    kw_only=True,
):
    """Options on detached jobs."""

    detach: bool = declare_flag(
        "Start the job without a terminal, print its id once all ranks run, and return.",
        excludes=(
            "--emit: a scheduler's job has no terminal to leave",
            "--watch: it starts the job again while you edit",
            "--pdb: a detached job has no terminal for debuggers",
        ),
        in_project=False,
        only_command="`start` returns at once",
        is_common=True,
    )
    attach: str | None = declare_option(
        LATEST_JOB,
        metavar="[ID]",
        in_environ=False,
        only_command=TERMINAL,
        help="Show the detached job ID, or the running or latest one; Ctrl-C leaves it running.",
        is_common=True,
    )
    jobs: bool = declare_flag(
        "List the detached jobs, each with its id, state, ranks, hosts and last line.",
        in_environ=False,
        only_command="it prints a list",
        is_common=True,
    )
    json: bool = declare_flag(
        "List them as JSON, one line a job, for scripts and other programs.",
        in_environ=False,
        needs="--jobs",
        only_command="it prints a list",
    )
    stop: str | None = declare_option(
        JOB,
        metavar="ID",
        in_environ=False,
        only_command="it is for detached jobs",
        help="End the detached job ID as Ctrl-C would, and wait for its end; again: kill its "
        "ranks.",
        is_common=True,
    )
    wait: str | None = declare_option(
        JOB,
        metavar="ID",
        in_environ=False,
        only_command="it is for detached jobs",
        help="Wait for the end of the detached job ID, at most --timeout D, and print it as JSON.",
        is_common=True,
    )


def find_action(options: Options) -> str:
    """Return the option that does something with detached jobs; "" for none."""
    actions = ("jobs", "stop", "wait", "attach")
    given = (name for name in actions if getattr(options, name) not in (None, False))
    return next(given, "")


def acts(options: Options) -> bool:
    """Return whether the command starts a detached job, or does something with one."""
    starts = DetachedOptions.of(options).detach and not options.dry_run
    return bool(starts or find_action(options))


def refuse(options: Options) -> None:
    """Refuse to leave a terminal that the job reads.

    Raises:
        LaunchError: the job reads it.

    """
    reads_for = "--hosts -" if options.hosts == "-" else "--stdin"
    reads = options.hosts == "-" or getattr(options, "stdin", False)
    if DetachedOptions.of(options).detach and reads and os.isatty(0):
        raise LaunchError(f"--detach leaves the terminal, which {reads_for} reads: use < FILE")


def complete(job: Job, where: Where) -> Job:
    """Return the job with its id, if this is the launcher of a detached job.

    Raises:
        LaunchError: PROGRAM on this machine has a syntax error, which no terminal would show.

    """
    job_id = os.environ.pop(ID, "")  # launchers that ranks start are not detached
    if job_id and not job.sync and any(host.is_local and not host.chdir for host in where.hosts):
        from mcjax_launch.features.detached.start import check_syntax

        check_syntax(job)
    return job.copy_with(job_id=job_id)


def begin(job: Job, hosts: Sequence[Host], front: Front) -> None:
    """Take the terminal's place, if the job is detached."""
    if job.job_id:
        from mcjax_launch.features.detached.start import stand_by

        stand_by(job, hosts, front)

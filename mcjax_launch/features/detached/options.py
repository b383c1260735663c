"""Options to start, show, list and end detached jobs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from mcjax_launch.options.kinds import Kind
from mcjax_launch.options.option import TERMINAL, OptionGroup, declare_flag, declare_option
from mcjax_launch.transport import early


def parse_job(value: Any) -> str:
    """Read the id of a detached job, or its first digits."""
    if not re.fullmatch("[0-9a-f]{1,8}", str(value)):
        raise ValueError(f"{value!r} is not the id of a detached job: --jobs lists them")
    return str(value)


def parse_latest_job(value: Any) -> str:
    """Read a detached job's id; "" for `latest`, or if the value is left out."""
    return "" if value in ("all", "latest") else parse_job(value)


def list_jobs() -> Iterator[tuple[str, str]]:
    """Yield the id of each detached job, the latest first, with its state and program."""
    from mcjax_launch.errors import LaunchError
    from mcjax_launch.features.detached.jobs import find_all_jobs

    with contextlib.suppress(LaunchError):
        for job in reversed(find_all_jobs()):
            yield job.id, f"{job.state}: {' '.join(job.description.program)}"


JOB = Kind(parse_job, "ID", offers=list_jobs)
LATEST_JOB = Kind(
    parse_latest_job, "[ID]", offers=list_jobs, follows=lambda word: not word.startswith("-")
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


def find_action(options: object) -> str:
    """Return the given option that acts on a detached job; "" for none."""
    actions = ("jobs", "stop", "wait", "attach")
    return next((name for name in actions if getattr(options, name) not in (None, False)), "")


def acts(options: Any) -> bool:
    """Return whether the command starts a detached job, is one, or does something with one."""
    if find_action(options) or early.DETACHED in os.environ:
        return True
    return DetachedOptions.of(options).detach and not options.dry_run


ADVISED = {
    "use --jobs: it lists the detached jobs": "ps list ls",
    "use --attach [ID]: it shows a detached job, and follows it": "follow tail",
    "use --attach [ID] for a detached job's lines; --log-dir DIR keeps each rank's output": "logs",
    "use --stop ID: it ends a detached job": "kill cancel",
    "use --detach: the job needs no terminal then": "background daemon bg",
}
COMMANDS = {
    **dict.fromkeys(("ps", "ls"), "--jobs lists the detached jobs"),
    **dict.fromkeys(("list", "jobs", "status"), "use --jobs"),
    **dict.fromkeys(("logs", "attach"), "use --attach [ID]"),
    **dict.fromkeys(("stop", "kill"), "use --stop ID"),
    "wait": "use --wait ID",
}
REMINDER = "--detach leaves a job to --jobs, --attach, --wait and --stop"

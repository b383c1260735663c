"""--stdin, and what it means for a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.option import OptionGroup, declare_flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where
    from mcjax_launch.options.options import Options

# Values that the option took before.
_RANKS = re.compile("all|none|[0-9][0-9,-]*")


class StdinOptions(OptionGroup, title="Job", kw_only=True):
    """Options on standard input."""

    stdin: bool = declare_flag(
        "Give rank 0, on this machine, the launcher's standard input: what you type, a file or a "
        "pipe.",
        only_command="standard input is the calling program's",
        in_project=False,
    )


def is_used(job: Job) -> bool:
    """Return whether rank 0 reads standard input."""
    return StdinOptions.of(job).stdin


def refuse(options: Options) -> None:
    """Refuse options that can never be combined with --stdin.

    Raises:
        LaunchError: they are.

    """
    if not StdinOptions.of(options).stdin:
        return
    if options.program and _RANKS.fullmatch(options.program[0]):
        raise LaunchError(
            f"--stdin {options.program[0]}: takes no ranks any more: rank 0 gets the launcher's "
            "standard input, and a file is read by each rank itself"
        )
    if options.hosts == "-":
        raise LaunchError("--hosts - reads standard input itself: with --stdin, name a file")


def warn(options: Options) -> Iterator[str]:
    """Yield a line on an interpreter without a script, such as `python` or `sh -`."""
    from mcjax_launch.request.program import STDIN, is_interpreter

    name, *arguments = options.program or [""]
    reads = is_interpreter(name) and (arguments in ([], ["-i"]) or arguments[0] in STDIN)
    if reads and not StdinOptions.of(options).stdin:
        yield (
            f"{' '.join(options.program)} reads its standard input, which is empty in ranks; "
            "--stdin gives rank 0 the launcher's"
        )


def complete(job: Job, where: Where) -> Job:
    """Return the job; refuse --stdin where rank 0 cannot read the launcher's standard input."""
    if not is_used(job):
        return job
    if not job.host_rank and not job.dry_run:
        _check_input(job, where.hosts[0])
    return job.copy_with(reads_input=True)


def describe(job: Job) -> Iterator[str]:
    """Yield lines for --dry-run."""
    if StdinOptions.of(job).stdin:
        yield "rank 0 reads the launcher's standard input"


def _check_input(job: Job, first: Host) -> None:
    """Refuse --stdin where rank 0 cannot read this process's standard input.

    Args:
        job: the job.
        first: rank 0's host.

    Raises:
        LaunchError: rank 0 is elsewhere, a restart cannot read a pipe again, or a shell reads the
            terminal.

    """
    from mcjax_launch.machine.system import find_input_position, is_in_foreground

    if not first.is_local:
        raise LaunchError(
            f"--stdin: rank 0 is on {first.name}, and ssh or another client of --via passes on no "
            "standard input: have PROGRAM open a file (--sync FILE)"
        )
    if job.max_restarts and find_input_position() is None:
        raise LaunchError(
            "--stdin: a restart can read standard input again only from a file; redirect it from "
            "one (< FILE), or leave out --max-restarts"
        )
    if is_in_foreground(0) is False:
        raise LaunchError(
            "--stdin: this job is in the background of its terminal, where the shell reads what is "
            "typed: start it in the foreground, or redirect a file (< FILE)"
        )


ADVISED = {"use --stdin < FILE": "input i"}

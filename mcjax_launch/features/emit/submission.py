"""The Submission: a job for the script or manifest of `--emit`; a value."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence, Set

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.emit.options import BatchOptions
from mcjax_launch.job.describe import make_command_line
from mcjax_launch.options.options import GRACE_S, Options
from mcjax_launch.ranks import format_count

# Options for the scheduler, which are not passed on to the launcher in the job.
_NOT_PASSED_ON = BatchOptions.declared.keys() | {
    *("num_hosts", "num_processes", "procs_per_host", "host_rank", "coordinator", "hosts", "via"),
    "dry_run",
}


class Submission(Options, BatchOptions, kw_only=True):
    """The options of a job for a scheduler, with defaults filled in.

    Args:
        emit: kind of script or manifest.
        given: names of the given options, which are passed on to the launcher in the job.
        name: name of the job.
        num_hosts: number of nodes, or of pods.
        procs_per_host: number of ranks on each node or in each pod.
        grace: seconds that ranks get to exit before they are killed.

    """

    emit: str
    given: tuple[str, ...]
    name: str
    num_hosts: int = 1
    procs_per_host: int = 1
    grace: float = GRACE_S["TERM"]

    @property
    def gpus(self) -> int:
        """Number of GPUs of each node; 0 for none."""
        each = self.gpus_per_process
        return each * self.procs_per_host if isinstance(each, int) else 0

    @property
    def attempt_s(self) -> float | None:
        """Longest duration of an attempt, with its grace, in seconds; None for no limit."""
        return None if self.timeout is None else self.timeout + self.grace

    def make_command(self) -> list[str]:
        """Return the command of the launcher in the job, by its absolute path on this machine."""
        path = os.path.abspath(sys.argv[0])
        if os.path.isfile(path) and os.access(path, os.X_OK) and not path.endswith("__main__.py"):
            return [path, *self.make_arguments()]
        return [sys.executable, "-m", "mcjax_launch", *self.make_arguments()]

    def make_arguments(self, without: Set[str] = frozenset()) -> list[str]:
        """Return the arguments of the launcher in the job.

        Args:
            without: names of options to leave out, because the scheduler handles them.

        """
        left_out = _NOT_PASSED_ON | without
        return make_command_line(self, [name for name in self.given if name not in left_out])


def make_submission(options: Options, given: Sequence[str]) -> Submission:
    """Make the submission that a command line describes.

    Args:
        options: all options.
        given: names of the options that were set, by the command line or a variable.

    Raises:
        LaunchError: an option is missing, or cannot be combined with --emit.

    """
    own = BatchOptions.of(options)
    if options.hosts is not None:
        raise LaunchError(
            "--emit: the scheduler chooses the hosts; say how many with --num-hosts instead"
        )
    if options.gpus_per_process == "all":
        raise LaunchError(
            f"--emit {own.emit}: --gpus-per-process all: say how many to ask for, as a number"
        )
    hosts = options.num_hosts or 1
    completed = {
        "given": tuple(given),
        "name": own.name or make_default_name(options.program[0]),
        "num_hosts": hosts,
        "procs_per_host": compute_ranks_per_host(
            hosts, options.num_processes, options.procs_per_host
        ),
        "grace": GRACE_S["TERM"] if options.grace is None else options.grace,
    }
    return Submission(**{**vars(options), **completed})


def compute_ranks_per_host(hosts: int, whole: int | None, each: int | None) -> int:
    """Return the number of ranks on each host.

    Args:
        hosts: number of hosts.
        whole: ranks of the whole job, from -n; None if not given.
        each: ranks on each host, from --procs-per-host; None if not given.

    Raises:
        LaunchError: hosts times ranks per host differs from the ranks of the whole job.

    """
    ranks = each or (whole or hosts) // hosts
    if whole is not None and whole != hosts * ranks:
        raise LaunchError(
            f"--emit: -n {whole} does not fit {format_count(hosts, 'host')} with "
            f"{format_count(ranks, 'rank')} each; set --num-hosts and --procs-per-host"
        )
    return ranks


def make_default_name(program: str) -> str:
    """Return a job name that every scheduler accepts, made from the program's name."""
    stem = os.path.basename(program).removesuffix(".py").lower()
    clean = "".join(char if char.isascii() and char.isalnum() else "-" for char in stem).strip("-")
    return clean if clean[:1].isalpha() else f"job-{clean}".rstrip("-")

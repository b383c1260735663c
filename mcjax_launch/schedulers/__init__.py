"""Schedulers: the code that differs between them. `kernel/wire/schedulers.py` lists all of them."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.wire.schedulers import KINDS, Scheduler

if TYPE_CHECKING:
    from mcjax_launch.schedulers.submission import Submission


class Driver:
    """The part of a scheduler's support that differs from other schedulers.

    Attributes:
        calls_back: its clients start programs but do not forward their streams reliably, so the
            agent connects to the launcher.
        no_ssh: advice for a cluster whose hosts forbid ssh; "" for none.

    """

    calls_back = False
    no_ssh = ""

    def hosts(self, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
        """Return the hosts of the allocation that the launcher runs in.

        Args:
            environ: the launcher's own variables.
            slots: ranks on each host, if the user gives that.

        Raises:
            LaunchError: the launcher is not where it should be, or the variables cannot be read.

        """
        raise NotImplementedError

    def client_argv(self, host: Host, script: str, client: str = "") -> list[str]:
        """Return the command line that runs a shell script on a host of the allocation.

        Args:
            host: one of `hosts`.
            script: for a POSIX shell; it contains no single quote.
            client: the scheduler's client to use.

        """
        raise NotImplementedError

    def lacks(self, environ: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return what the job should have requested to get more slots; "" if unknown."""
        return ""

    def restarts(self, environ: Mapping[str, str]) -> int:  # noqa: ARG002
        """Return how often the job has been restarted, if no variable says so."""
        return 0


def driver(scheduler: Scheduler) -> Driver:
    """Return the driver of a scheduler whose allocations have hosts."""
    found: Driver = import_module(f"{__name__}.{scheduler.name}").DRIVER
    return found


def emit(submission: "Submission") -> str:
    """Return the text that `--emit` prints.

    Raises:
        LaunchError: something that the scheduler needs is missing or invalid.

    """
    if submission.tpu is not None and submission.emit != "jobset":
        raise LaunchError("--tpu needs --emit jobset, which keeps each slice on one node pool")
    if KINDS[submission.emit].name == "kubernetes":
        from mcjax_launch.schedulers import kubernetes

        return kubernetes.manifest(submission)
    from mcjax_launch.schedulers import batch

    return batch.script(submission)

"""Drivers of schedulers, and --emit. `machine/known_schedulers.py` lists all schedulers."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.machine.known_schedulers import KINDS, Scheduler

if TYPE_CHECKING:
    from mcjax_launch.schedulers.submission import Submission


class Driver:
    """Base class of drivers: the scheduler's hosts, client command if any, and restarts."""

    def find_hosts(self, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
        """Return the hosts of the allocation that the launcher runs in.

        Args:
            environ: variables of the launcher.
            slots: ranks on each host, from --procs-per-host; None if not given.

        Raises:
            LaunchError: the launcher runs at the wrong place, such as in each task of the job, or
                the allocation cannot be read.

        """
        raise NotImplementedError

    def make_client_argv(self, host: Host, script: str) -> list[str]:
        """Return the command line of the scheduler's client that runs a shell script on a host.

        Args:
            host: host from `find_hosts`.
            script: script for a POSIX shell, without single quotes.

        """
        raise NotImplementedError

    def explain_few_slots(self, environ: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return why a job may have too few slots, with the cure; "" if nothing is known."""
        return ""


def load_driver(scheduler: Scheduler) -> Driver:
    """Return the driver of a scheduler, which must have a module in this package."""
    found: Driver = import_module(f"{__name__}.{scheduler.module or scheduler.name}").DRIVER
    return found


def emit(submission: "Submission") -> str:
    """Return the batch script or manifest that `--emit` prints.

    Raises:
        LaunchError: an option that the scheduler needs is missing or invalid.

    """
    if submission.tpu is not None and submission.emit != "jobset":
        raise LaunchError("--tpu needs --emit jobset, which keeps each slice on one node pool")
    if KINDS[submission.emit].name == "kubernetes":
        from mcjax_launch.schedulers import kubernetes

        return kubernetes.build_manifest(submission)
    from mcjax_launch.schedulers import batch

    return batch.build_script(submission)

"""--watch in place of a single run."""

from __future__ import annotations

from collections.abc import Sequence

from mcjax_launch.cli import own_lines
from mcjax_launch.cli.command_line import CommandLine
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch.watcher import Watcher
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.launcher.front import Front


def act(line: CommandLine) -> int:
    """Run the job again after each save; return the exit status."""
    line.approve()
    line.make_events()
    line.events.open()

    def run_forked(job: Job, hosts: Sequence[Host], front: Front) -> int:
        """Run the job in this process, a fork of the watching one; return the exit status."""
        try:
            return own_lines.report_errors(lambda: run(job, hosts, front), front.leave_if_held)
        finally:
            line.events.finish()

    def run(job: Job, hosts: Sequence[Host], front: Front) -> int:
        try:
            return line.run_job(job, hosts, front).status
        except LaunchError as error:
            line.journal.append(JobOutcome(error.status, str(error), program=job.program))
            raise

    return Watcher(line.read_again, run_forked, own_lines.say).run()

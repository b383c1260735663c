"""--detach, --attach, --jobs, --stop and --wait in place of a run; and the detached launcher."""

from __future__ import annotations

import os

from mcjax_launch.features.detached.options import find_action
from mcjax_launch.request.command_line import CommandLine
from mcjax_launch.transport import early


def act(line: CommandLine) -> int:
    """Do what a command line asks for; return the exit status."""
    if job_id := os.environ.pop(early.DETACHED, ""):
        return _run(line, job_id)
    if find_action(line.typed):
        from mcjax_launch.features.detached import commands

        line.check_once()
        return commands.act(line.typed, line.given, line.say)
    from mcjax_launch.features.detached.start import check_detach, detach

    check_detach(line.options, line.given)
    line.approve(warns=False)  # the detached launcher prints warnings
    return detach(line.options, line.words)


def _run(line: CommandLine, job_id: str) -> int:
    """Run the job without a terminal, as the launcher that --detach has started."""
    from mcjax_launch.features.detached.standby import Standby
    from mcjax_launch.launcher.entry import make_own_front
    from mcjax_launch.request import this_machine

    line.approve()
    line.make_events(waits=False)  # the starter may be gone before a FIFO has a reader
    job, hosts = line.prepare()
    if this_machine.runs_here(hosts) and not job.sync:
        from mcjax_launch.features.detached.start import check_syntax

        check_syntax(job)
    front = make_own_front()
    standby = Standby(job_id, front.loop)
    front.detach(standby)
    line.on_close(standby.close)  # once all events have been written
    standby.describe(job.program, job.num_processes, [host.name for host in hosts])
    line.journal.add_reader(standby)
    return line.run_job(job.copy_with(job_id=job_id), hosts, front).status

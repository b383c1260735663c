"""--attach: show a detached job on this terminal."""

from __future__ import annotations

from mcjax_launch.console.console import Console
from mcjax_launch.detached.connection import open_connection
from mcjax_launch.detached.jobs import (
    ENDED,
    LOST,
    RUNNING,
    DetachedJob,
    find,
    find_latest,
    wait_until_settled,
)
from mcjax_launch.detached.visit import (
    DISK_FULL,
    LAUNCHER_GONE,
    NOBODY_READS,
    JobDisplay,
)
from mcjax_launch.options.options import Options
from mcjax_launch.wire import exit_status


def attach(options: Options) -> int:
    """Show a detached job until it ends or the user detaches again; return the exit status.

    Raises:
        LaunchError: there is no such job, or it runs on another machine.

    """
    assert options.attach is not None
    job = find(options.attach) if options.attach else find_latest()
    connection = open_connection(job, "attach")
    visiting = JobDisplay(options, job.folder, connection)
    if not options.attach:
        program = " ".join(job.description.program)
        visiting.console.note(f"job {job.id}, {job.state}: {program}")
    if job.recorded.full:
        visiting.console.say(DISK_FULL)
    end = visiting.run()
    if end == LAUNCHER_GONE:
        over = wait_until_settled(job)
        visiting.finish(lambda console: _say_end(console, over))
        status = over.exit_status
        return exit_status.HOST_LOST if status is None else status
    if end == NOBODY_READS:
        return exit_status.READER_GONE
    back = (
        f"job {job.id} continues: mcjax-launch --attach {job.id} returns to it, "
        f"mcjax-launch --stop {job.id} ends it"
    )
    visiting.finish(lambda console: console.say(back))
    return exit_status.compute_signal_status(end)


def _say_end(console: Console, job: DetachedJob) -> None:
    """Print the end of a job whose launcher closed the connection without printing it."""
    if job.state == RUNNING:
        console.say(
            f"job {job.id} runs, but its launcher closed the connection: is it another version?"
        )
    elif job.state == LOST:
        console.show_summary([f"job {job.id} is lost: {job.end}"], alarm=True)
    elif job.state == ENDED and job.recorded.full:  # the summary may be missing
        console.say(f"job {job.id} has ended with exit status {job.exit_status}: {job.end}")
    elif job.state == ENDED:
        console.note(f"job {job.id} has ended with exit status {job.exit_status}")

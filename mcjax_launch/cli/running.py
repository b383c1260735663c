"""The commands that run a job: once, again after each save (--watch), or without a terminal."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from mcjax_launch.cli import project
from mcjax_launch.cli.origins import rewrite_words
from mcjax_launch.cli.own_lines import print_text, report_errors, say, write
from mcjax_launch.cli.warnings import find_misplaced_options, get_own_words
from mcjax_launch.errors import LaunchError
from mcjax_launch.journal import optional
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.journal.events import Events
from mcjax_launch.journal.facts import Said
from mcjax_launch.journal.journal import Journal
from mcjax_launch.options.options import Options
from mcjax_launch.request import ready, this_machine
from mcjax_launch.request.coordinates import find_program_name, reads_coordinates
from mcjax_launch.request.this_machine import is_on_github

if TYPE_CHECKING:
    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.launcher.front import Front

# Texts in the message of a job whose program got too few arguments, and what may be missing.
_TOO_FEW = (
    *("IndexError", "not enough values to unpack", "exit status 2", "sys.exit(2)"),
    *("invalid literal for int()", "Missing mandatory value", "is not in struct"),
)
_COORDINATES = "{process_id}, {num_processes} and {coordinator}"
# A file in every container of Kubernetes, which reads it when the container ends.
_TERMINATION_LOG = "/dev/termination-log"


class Command:
    """The command line, with what all ways to run its job need.

    Args:
        options: checked options.
        context: click's context.
        journal: facts of the job.
        events: the reader of the journal that writes events.

    """

    def __init__(
        self, options: Options, context: click.Context, journal: Journal, events: Events
    ) -> None:
        self._options = options
        self._context = context
        self._journal = journal
        self._events = events

    def run(self) -> int:
        """Run the job once, or only describe it (--dry-run); return the exit status."""
        job, hosts = ready.prepare(self._options, os.environ, self._note)
        if self._options.dry_run:
            from mcjax_launch.job.describe import format_dry_run_here

            print_text(format_dry_run_here(job, hosts))
            return 0
        return self._run_job(job, hosts).status

    def run_detached(self, job_id: str) -> int:
        """Run the job without a terminal, as the launcher that --detach has started."""
        from mcjax_launch.features.detached.standby import Standby
        from mcjax_launch.launcher.entry import make_own_front

        job, hosts = ready.prepare(self._options, os.environ, self._note)
        if this_machine.runs_here(hosts) and not job.sync:
            from mcjax_launch.features.detached.start import check_syntax

            check_syntax(job)
        front = make_own_front()
        standby = Standby(job_id, front.loop)
        front.detach(standby)
        self._context.call_on_close(standby.close)  # once all events have been written
        standby.describe(job.program, job.num_processes, [host.name for host in hosts])
        self._journal.add_reader(standby)
        return self._run_job(job.copy_with(job_id=job_id), hosts, front).status

    def watch(self) -> int:
        """Run the job again after each save; return the exit status."""
        from mcjax_launch.features.watch.watcher import Watcher

        self._events.open()
        given = Options(**self._context.params)
        return Watcher(
            lambda: project.with_project_options(given, self._context), self._run_watched, say
        ).run()

    def _run_watched(self, job: "Job", hosts: "Sequence[Host]", front: "Front") -> int:
        """Run the job in this process, a fork of the watching one; return the exit status."""

        def run() -> int:
            try:
                return self._run_job(job, hosts, front).status
            except LaunchError as error:
                self._journal.append(JobOutcome(error.status, str(error), program=job.program))
                raise

        try:
            return report_errors(run, front.leave_if_held)
        finally:
            self._events.finish()

    def _note(self, line: str) -> None:
        self._journal.append(Said(line, "note"))
        if not self._options.quiet:
            say(line)

    def _say(self, line: str) -> None:
        self._journal.append(Said(line, "say"))
        say(line)

    def _run_job(
        self, job: "Job", hosts: "Sequence[Host]", front: "Front | None" = None
    ) -> JobOutcome:
        """Run a prepared job, and print hints after a failure; see `ready.run`."""
        self._events.open()
        for reader in _make_readers():
            self._journal.add_reader(reader)
        outcome = ready.run(
            job,
            hosts,
            lambda: rewrite_words(self._options, self._context),
            self._say,
            journal=self._journal,
            events=self._events,
            front=front,
        )
        if outcome.status and not self._options.quiet:
            for line in self._find_argument_hints(outcome, job):
                self._say(line)
        self._journal.append(outcome)
        return outcome

    def _find_argument_hints(self, outcome: JobOutcome, job: "Job") -> Iterator[str]:
        """Yield hints about wrong arguments of a program that has failed."""
        yield from find_misplaced_options(self._options, self._context, outcome)
        if not outcome.failed_early:
            return
        if not any(mark in outcome.message for mark in _TOO_FEW):
            return
        if program := job.suggest_program():
            import shlex

            line = shlex.join(["mcjax-launch", *get_own_words(self._options, self._context)])
            yield f"hint: {find_program_name(job)} needs arguments: {line} {' '.join(program)}"
        elif reads_coordinates(job):
            yield f"hint: in PROGRAM's arguments, {_COORDINATES} are replaced by each rank's own"


def _make_readers() -> Iterator[object]:
    """Yield the journal's readers for GitHub Actions and Kubernetes, if the command runs there."""
    if os.path.isfile(_TERMINATION_LOG) and (termination := optional.load("report.termination")):
        yield termination.TerminationMessage(_TERMINATION_LOG)
    if is_on_github(os.environ) and (github := optional.load("report.github")):
        yield github.Annotations(write, os.environ.get("GITHUB_WORKSPACE") or os.getcwd())

"""The command line, with what all ways to act on it need; features have further ways."""

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from mcjax_launch.cli import own_lines, project
from mcjax_launch.cli.help import WORDS
from mcjax_launch.cli.origins import list_options_from, list_set_options, rewrite_words
from mcjax_launch.cli.warnings import find_misplaced_options, find_warnings, get_own_words
from mcjax_launch.cli.words import check_once, explain_swallowed_program
from mcjax_launch.errors import LaunchError
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.journal.events import NO_EVENTS, Events
from mcjax_launch.journal.facts import Said
from mcjax_launch.journal.journal import Journal
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.request import combinations, ready

if TYPE_CHECKING:
    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.journal.opening import EventsTarget
    from mcjax_launch.launcher.front import Front


class TypedCommand:
    """The command line; see the interface in `request/command_line.py`.

    Args:
        typed: options of the command line and of variables.
        context: click's context.
        journal: facts of the job.

    """

    def __init__(self, typed: Options, context: click.Context, journal: Journal) -> None:
        self.typed = typed
        self.given = frozenset(list_options_from(context, ParameterSource.COMMANDLINE))
        self.words: Sequence[str] = context.meta[WORDS]
        self.journal = journal
        self.events: Events = NO_EVENTS
        self._context = context

    @cached_property
    def options(self) -> Options:
        """Options with those of the project's file."""
        return self.read_again()

    def read_again(self) -> Options:
        """Return all options, by the present file of the project."""
        return project.with_project_options(self.typed, self._context)

    def list_set(self) -> list[str]:
        """Return the names of the options that the user or the project has set."""
        return list_set_options(self._context)

    def rewrite(self) -> list[str]:
        """Return the words, with options from the environment and the project written out."""
        return rewrite_words(self.options, self._context)

    # --- checks ---

    def check_once(self) -> None:
        """Refuse two values of an option that can have one."""
        check_once(self.words, self._context.command.params)

    def approve(
        self, *, warns: bool = True, needs_program: bool = True, is_elsewhere: bool = False
    ) -> None:
        """Refuse options that cannot be combined, and warn about likely mistakes."""
        options, context = self.options, self._context
        if needs_program and not options.program:
            swallowed = explain_swallowed_program(self.words, context.command.params)
            raise LaunchError(swallowed or combinations.NO_PROGRAM)
        self.check_once()
        # Options from variables do not count: those may be set for many command lines.
        combinations.check(options, self.given, os.environ, is_elsewhere=is_elsewhere)
        if not warns:
            return
        if options.verbose and not options.quiet:
            from mcjax_launch.cli.origins import describe_origins

            for line in describe_origins(options, context):
                own_lines.say(line)
        for line in find_warnings(options, context, os.environ, is_elsewhere=is_elsewhere):
            own_lines.say(line)

    # --- events ---

    def make_events(self) -> None:
        """Have events written, as --events says."""
        options = self.options
        if options.events is None or options.dry_run:
            return
        from mcjax_launch.journal.opening import EventsTarget

        self.events = self._make_stream(EventsTarget(options.events, self.say))
        self.journal.add_reader(self.events)

    def _make_stream(self, target: "EventsTarget") -> Events:
        if self._context.obj is None:
            from mcjax_launch.journal.stream import EventStream

            return EventStream(target)
        from mcjax_launch.journal.client import ClientStream

        return ClientStream(target, self._context.obj)

    def finish_events(self) -> None:
        """Write the events that are left."""
        self.events.finish()

    def on_close(self, act: Callable[[], object]) -> None:
        """Call a function at the end of the command, when all events have been written."""
        self._context.call_on_close(act)

    # --- the job ---

    def run(self) -> int:
        """Run the job once, or only describe it (--dry-run); return the exit status."""
        self.approve()
        self.make_events()
        job, hosts = self.prepare()
        if self.options.dry_run:
            from mcjax_launch.job.describe import format_dry_run_here

            self.print(format_dry_run_here(job, hosts))
            return 0
        return self.run_job(job, hosts).status

    def prepare(self) -> "tuple[Job, tuple[Host, ...]]":
        """Return the job and its hosts; see `ready.prepare`."""
        return ready.prepare(self.options, os.environ, self._note)

    def run_job(
        self, job: "Job", hosts: "Sequence[Host]", front: "Front | None" = None
    ) -> JobOutcome:
        """Run a prepared job, and print hints after a failure; see `ready.run`."""
        self.events.open()
        outcome = ready.run(
            job,
            hosts,
            self.rewrite,
            self._say,
            journal=self.journal,
            events=self.events,
            front=front,
        )
        if outcome.status and not self.options.quiet:
            words = get_own_words(self.options, self._context)
            for line in (
                *find_misplaced_options(self.options, self._context, outcome),
                *declared.collect("advise", job, outcome, words),
            ):
                self._say(line)
        self.journal.append(outcome)
        return outcome

    # --- lines ---

    def _note(self, line: str) -> None:
        self.journal.append(Said(line, "note"))
        if not self.options.quiet:
            self.say(line)

    def _say(self, line: str) -> None:
        self.journal.append(Said(line, "say"))
        self.say(line)

    def say(self, line: str) -> None:
        """Print a line of the launcher."""
        own_lines.say(line)

    def print(self, text: str) -> None:
        """Print text on stdout."""
        own_lines.print_text(text)

    def report_errors(self, run: Callable[[], int], before: Callable[[], object]) -> int:
        """Return what `run` returns; print its errors, after `before`, and return their status."""
        return own_lines.report_errors(run, before)

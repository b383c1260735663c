"""The command line, with what all ways to act on it need; features have further ways.

The module `command` of such a feature has a function `act(line: CommandLine) -> int`, which returns
the exit status. `acts(options)` in its `options` says whether a command line asks for it.
"""

import os
from collections.abc import Sequence
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


class CommandLine:
    """The command line, and the run of its job.

    Args:
        typed: options of the command line and of variables.
        context: click's context.
        journal: facts of the job.

    Attributes:
        given: names of the options on the command line.
        words: its words, as typed.
        events: the reader of the journal that writes events.

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
        """Options with those of the project's file, which is read at the first use."""
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
        """Refuse options that cannot be combined, and warn about likely mistakes.

        Args:
            warns: False to print no warnings.
            needs_program: False if it makes sense without PROGRAM.
            is_elsewhere: True if the job runs on a machine that is not known here.

        """
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

        self.events = self._make_stream(EventsTarget(options.events, own_lines.say))
        self.journal.add_reader(self.events)

    def _make_stream(self, target: "EventsTarget") -> Events:
        if self._context.obj is None:
            from mcjax_launch.journal.stream import EventStream

            return EventStream(target)
        from mcjax_launch.journal.client import ClientStream

        return ClientStream(target, self._context.obj)

    # --- the job ---

    def run(self) -> int:
        """Run the job once, or only describe it (--dry-run); return the exit status."""
        self.approve()
        self.make_events()
        job, hosts = ready.prepare(self.options, os.environ, self._note)
        if self.options.dry_run:
            from mcjax_launch.job.describe import format_dry_run_here

            own_lines.print_text(format_dry_run_here(job, hosts))
            return 0
        return self.run_job(job, hosts).status

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
            own_lines.say(line)

    def _say(self, line: str) -> None:
        self.journal.append(Said(line, "say"))
        own_lines.say(line)

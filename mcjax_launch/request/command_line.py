"""Interface of the command line for features that do something else than run its job once.

The module `command` of such a feature has a function `act(line: CommandLine) -> int`, which returns
the exit status. `acts(options)` in its `options` says whether a command line asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.journal.attempt import JobOutcome
    from mcjax_launch.journal.events import Events
    from mcjax_launch.journal.journal import Journal
    from mcjax_launch.launcher.front import Front
    from mcjax_launch.options.options import Options


class CommandLine(Protocol):
    """The command line, with what all ways to act on it need; see `cli/running.py`.

    Attributes:
        typed: options of the command line and of variables.
        given: names of the options on the command line.
        words: its words, as typed.
        journal: facts of the job.
        events: the reader of the journal that writes events.

    """

    typed: Options
    given: frozenset[str]
    words: Sequence[str]
    journal: Journal
    events: Events

    @property
    def options(self) -> Options:
        """Options with those of the project's file, which is read at the first use."""

    def read_again(self) -> Options:
        """Return all options, by the present file of the project."""

    def list_set(self) -> list[str]:
        """Return the names of the options that the user or the project has set."""

    def rewrite(self) -> list[str]:
        """Return the words, with options from the environment and the project written out."""

    def check_once(self) -> None:
        """Refuse two values of an option that can have one."""

    def approve(
        self, *, warns: bool = True, needs_program: bool = True, is_elsewhere: bool = False
    ) -> None:
        """Refuse options that cannot be combined, and warn about likely mistakes.

        Args:
            warns: False to print no warnings.
            needs_program: False if it makes sense without PROGRAM.
            is_elsewhere: True if the job runs on a machine that is not known here.

        """

    def make_events(self) -> None:
        """Have events written, as --events says."""

    def finish_events(self) -> None:
        """Write the events that are left."""

    def on_close(self, act: Callable[[], object]) -> None:
        """Call a function at the end of the command, when all events have been written."""

    def prepare(self) -> tuple[Job, tuple[Host, ...]]:
        """Return the job and its hosts; see `ready.prepare`."""

    def run_job(self, job: Job, hosts: Sequence[Host], front: Front | None = None) -> JobOutcome:
        """Run a prepared job, and print hints after a failure; see `ready.run`."""

    def say(self, line: str) -> None:
        """Print a line of the launcher."""

    def print(self, text: str) -> None:
        """Print text on stdout."""

    def report_errors(self, run: Callable[[], int], before: Callable[[], object]) -> int:
        """Return what `run` returns; print its errors, after `before`, and return their status."""

"""The run of a job for a Python program that has started the command (the API's client)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import make_command_line
from mcjax_launch.journal.client import Client
from mcjax_launch.journal.events import Events
from mcjax_launch.journal.facts import Said
from mcjax_launch.journal.journal import Journal
from mcjax_launch.options.options import Options
from mcjax_launch.request import combinations, ready


def run(
    client: Client,
    options: Options,
    given: Collection[str],
    journal: Journal,
    events: Events,
    show: Callable[[str], object],
) -> int:
    """Run a job for a program; return the exit status, which the event `summary` has reported too.

    Args:
        client: connection to the program.
        options: options of the command line.
        given: names of the options on the command line.
        journal: facts of the job.
        events: stream of events to the program.
        show: prints a line of the launcher.

    Raises:
        LaunchError: the job could not be started.

    """
    names = [name for name in given if name != "events"]  # which is of no use in a record
    named = {name: getattr(options, name) for name in names}
    if client.hosts:
        named["hosts"] = tuple(client.hosts)
    options = Options(program=options.program, **named)
    # VIRTUAL_ENV is the shell's: the Python of the ranks is this one, if it has jax.
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    if not options.program:
        raise LaunchError(combinations.NO_PROGRAM)
    combinations.check(options, frozenset(names), environ)

    def say(line: str) -> None:
        journal.append(Said(line, "say"))
        if not options.quiet:
            show(line)

    job, hosts = ready.prepare(options, environ, say)
    # A log of GitHub Actions is the program's, as its streams are.
    job = job.copy_with(on_github=False)
    if client.calls is not None:  # of a session
        job = job.copy_with(has_calls=True)
    if not client.echoes:
        job = job.copy_with(show=frozenset())
    words = make_command_line(options, names)
    outcome = ready.run(job, hosts, lambda: words, say, journal=journal, events=events)
    journal.append(outcome)
    return outcome.status

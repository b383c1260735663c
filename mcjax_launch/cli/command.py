"""The click command: a function for each thing that it does.

Every run waits for the imports of this module; modules that only some runs need are imported later.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mcjax_launch.cli.help import WORDS, GroupedCommand
from mcjax_launch.cli.options import GROUPS, PROGRAM
from mcjax_launch.cli.origins import list_options_from, list_set_options, rewrite_words
from mcjax_launch.cli.own_lines import print_text, report_errors, say, write
from mcjax_launch.cli.project import with_project_options
from mcjax_launch.cli.running import Command
from mcjax_launch.cli.warnings import find_warnings
from mcjax_launch.cli.words import check_once, explain_swallowed_program
from mcjax_launch.errors import LaunchError
from mcjax_launch.journal import optional
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.journal.events import NO_EVENTS, Events
from mcjax_launch.journal.journal import Journal
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import find_removed_variables
from mcjax_launch.request import combinations
from mcjax_launch.request.this_machine import is_on_github
from mcjax_launch.transport import early
from mcjax_launch.wire import exit_status

if TYPE_CHECKING:
    from mcjax_launch.journal.client import Client
    from mcjax_launch.journal.opening import EventsTarget


NAME = "mcjax-launch"
#: Set by a shell that asks for completion.
COMPLETE = "_MCJAX_LAUNCH_COMPLETE"
_EVENTS = "mcjax_launch.events"  # in the meta of click's context


@click.command(
    cls=GroupedCommand,
    groups=GROUPS,
    params=[PROGRAM, *(option for options in GROUPS.values() for option in options)],
    context_settings={
        "auto_envvar_prefix": "MCJAX",
        "allow_interspersed_args": False,
    },
    add_help_option=False,
    options_metavar="[OPTIONS] [--]",
)
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    """Run PROGRAM as the processes of one multi-controller JAX job.

    PROGRAM is a Python file (*.py), a module (with -m) or any other command. In its arguments, in
    --wrap, -x values and --log-dir, each rank's own {process_id}, {num_processes},
    {local_process_id}, {coordinator}, {coordinator_host}, {coordinator_port}, {host} and {job_id}
    are filled in. Coordinates that a Python PROGRAM reads from its arguments are filled in for you
    if you give it none and its source shows which they are.

    D is a duration: 90, 90s, 5m, 1h30m or 1d. RANKS is a set of ranks: 0 or 0,4-7. Every option but
    --attach, --jobs, --json, --stop and --wait can also be a variable, such as MCJAX_LOG_DIR.
    """
    options, client = Options(**values), context.obj
    journal = Journal()
    try:
        act = _act if client is None else _serve
        return act(options, context, journal)
    except LaunchError as error:
        from mcjax_launch.cli.usage_errors import as_typed, with_origins

        message = as_typed(with_origins(str(error), context, error.status), context)
        if declared.get(options, "emit") is None and client is None and is_on_github(os.environ):
            github = optional.load("report.github")
            write(github.format_command("error", message) if github else "")
        journal.append(JobOutcome(error.status, message, program=options.program))
        if client is not None:  # which raises it
            return error.status
        raise LaunchError(message, error.status) from None
    except Exception as error:
        message = f"internal error: {error!r}"
        journal.append(JobOutcome(exit_status.INTERNAL_ERROR, message, program=options.program))
        raise
    finally:
        context.meta.get(_EVENTS, NO_EVENTS).finish()


def _act(options: Options, context: click.Context, journal: Journal) -> int:
    """Do what a user's command line asks for; return the exit status."""
    for line in find_removed_variables(os.environ):
        raise LaunchError(line)
    detached = declared.load_all().get("detached")
    if detached is not None and detached.find_action(options):
        return _act_on_detached(options, context)
    options = with_project_options(options, context)
    if options.check:
        return _check(options, context)
    if not options.program:
        _refuse_swallowed_program(context)
    if declared.get(options, "emit") is not None:
        return _emit(options, context)
    job_id = os.environ.pop(early.DETACHED, "")
    if declared.get(options, "detach") and not options.dry_run and not job_id:
        return _detach(options, context)
    _approve(options, context)
    return _run(options, context, journal, job_id)


def _run(options: Options, context: click.Context, journal: Journal, job_id: str) -> int:
    """Run a job; `job_id` is "" unless its starter has detached this launcher."""
    # The starter of a detached job may be gone before a FIFO has a reader.
    events = _make_events(options, context, journal, waits=not job_id)
    command = Command(options, context, journal, events)
    if declared.get(options, "watch"):
        return command.watch()
    return command.run_detached(job_id) if job_id else command.run()


def _serve(options: Options, context: click.Context, journal: Journal) -> int:
    """Run a job for a program that uses the API."""
    from mcjax_launch.cli import serving

    events = _make_events(options, context, journal, waits=True)
    names = list_options_from(context, ParameterSource.COMMANDLINE)
    return serving.run(context.obj, options, names, journal, events, say)


def _make_events(
    options: Options, context: click.Context, journal: Journal, *, waits: bool
) -> Events:
    """Return the reader of the journal that writes events.

    Args:
        options: options of the command line.
        context: click's context.
        journal: facts of the job.
        waits: True to wait for the reader of a FIFO.

    """
    if options.events is None or options.dry_run:
        return NO_EVENTS
    from mcjax_launch.journal.opening import EventsTarget

    target = EventsTarget(options.events, say if waits else None)
    events = context.meta[_EVENTS] = _make_stream(target, context.obj)
    journal.add_reader(events)
    return events


def _make_stream(target: "EventsTarget", client: "Client | None") -> Events:
    if client is None:
        from mcjax_launch.journal.stream import EventStream

        return EventStream(target)
    from mcjax_launch.journal.client import ClientStream

    return ClientStream(target, client)


def _act_on_detached(options: Options, context: click.Context) -> int:
    """Run --attach, --jobs, --stop or --wait; return the exit status."""
    from mcjax_launch.features.detached.commands import act

    check_once(context.meta[WORDS], context.command.params)
    return act(options, frozenset(list_options_from(context, ParameterSource.COMMANDLINE)), say)


def _detach(options: Options, context: click.Context) -> int:
    """Check the options and start a detached job; return the exit status."""
    from mcjax_launch.features.detached.start import check_detach, detach

    check_detach(options, frozenset(list_options_from(context, ParameterSource.COMMANDLINE)))
    _approve(options, context, warn=False)  # the detached launcher prints warnings
    return detach(options, context.meta[WORDS])


def _emit(options: Options, context: click.Context) -> int:
    from mcjax_launch.features.emit import emit

    text = emit(options, list_set_options(context))
    _approve(options, context)
    print_text(text)
    return 0


def _check(options: Options, context: click.Context) -> int:
    from mcjax_launch.cli.checking import check

    _approve(options, context, warn=not options.quiet)
    return check(options, lambda: rewrite_words(options, context))


def _refuse_swallowed_program(context: click.Context) -> None:
    if why := explain_swallowed_program(context.meta[WORDS], context.command.params):
        raise LaunchError(why)


def _approve(options: Options, context: click.Context, *, warn: bool = True) -> None:
    """Refuse options that cannot be combined; if `warn`, print warnings about likely mistakes."""
    check_once(context.meta[WORDS], context.command.params)
    # Options from variables do not count: those may be set for many command lines.
    names = frozenset(list_options_from(context, ParameterSource.COMMANDLINE))
    combinations.check(options, names, os.environ)
    if not warn:
        return
    if options.verbose and not options.quiet:
        from mcjax_launch.cli.origins import describe_origins

        for line in describe_origins(options, context):
            say(line)
    for line in find_warnings(options, context, os.environ):
        say(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    try:
        return _run_command(argv)
    finally:
        with contextlib.suppress(OSError, AttributeError):  # gone, or never there
            sys.stdout.flush()


def _make_settings() -> dict[str, Any]:
    """Return settings of click's context; for an API client, options come from words alone."""
    if early.CLIENT not in os.environ:
        return {}
    from mcjax_launch.journal.client import pop_client

    return {"obj": pop_client(os.environ), "auto_envvar_prefix": None}


def _run_command(argv: Sequence[str] | None) -> int:
    """Run the command line; print every error as one line, and return its exit status."""

    def run() -> int:
        if COMPLETE in os.environ:
            from mcjax_launch.cli.completion import complete

            return complete(command, NAME, COMPLETE)
        # The command's own status; --help and --version return 0.
        return int(
            command.main(argv, prog_name=NAME, standalone_mode=False, **_make_settings()) or 0
        )

    return report_errors(run, lambda: None)

"""The click command: a function for each thing that it does.

Every run waits for the imports of this module; modules that only some runs need are imported later.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from mcjax_launch.cli.command_line import CommandLine
from mcjax_launch.cli.help import GroupedCommand
from mcjax_launch.cli.options import GROUPS, PROGRAM
from mcjax_launch.cli.own_lines import report_errors, say, write
from mcjax_launch.errors import LaunchError
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.journal.journal import Journal
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import find_removed_variables
from mcjax_launch.request.this_machine import is_on_github
from mcjax_launch.transport import early
from mcjax_launch.wire import exit_status

NAME = "mcjax-launch"
#: Set by a shell that asks for completion.
COMPLETE = "_MCJAX_LAUNCH_COMPLETE"


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

    D is a duration: 90, 90s, 5m, 1h30m or 1d. RANKS is a set of ranks: 0 or 0,4-7. EVERY
    OPTION can also be a variable, such as MCJAX_LOG_DIR.
    """
    line = CommandLine(Options(**values), context, Journal())
    try:
        return _serve(line, context) if context.obj is not None else _act(line)
    except LaunchError as error:
        from mcjax_launch.cli.usage_errors import as_typed, with_origins

        message = as_typed(with_origins(str(error), context, error.status), context)
        _append_end(line, error.status, message)
        if context.obj is not None:  # the client raises it
            return error.status
        if is_on_github(os.environ) and (github := declared.load("github")):
            write(github.format_command("error", message))
        raise LaunchError(message, error.status) from None
    except Exception as error:
        _append_end(line, exit_status.INTERNAL_ERROR, f"internal error: {error!r}")
        raise
    finally:
        line.events.finish()


def _append_end(line: CommandLine, status: int, message: str) -> None:
    line.journal.append(JobOutcome(status, message, program=line.typed.program))


def _act(line: CommandLine) -> int:
    """Do what a user's command line asks for; return the exit status."""
    for removed in find_removed_variables(os.environ):
        raise LaunchError(removed)
    act = declared.load_act(line.typed)
    return line.run() if act is None else act(line)


def _serve(line: CommandLine, context: click.Context) -> int:
    """Run a job for a program that uses the API."""
    from mcjax_launch.cli import serving

    line.make_events()
    return serving.run(context.obj, line.typed, line.given, line.journal, line.events, say)


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

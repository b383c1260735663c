"""The command itself, and the one handler for everything that can go wrong with it.

Every run waits for the imports here; what only some runs need is imported where they need it.
"""

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcjax_launch.cli import combinations, request, this_machine
from mcjax_launch.cli.help import GroupedCommand
from mcjax_launch.cli.hosts import default_via, find_hosts
from mcjax_launch.cli.options import GROUPS, PROGRAM, Options
from mcjax_launch.cli.program import check_program
from mcjax_launch.cli.warnings import warnings
from mcjax_launch.console.style import Style
from mcjax_launch.diagnosis.attempt import Outcome
from mcjax_launch.errors import LaunchError, save_traceback
from mcjax_launch.job import placeholders
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import used_hosts
from mcjax_launch.launcher.entry import run as run_job
from mcjax_launch.protocol import exit_status
from mcjax_launch.wording import one_line

if TYPE_CHECKING:
    from mcjax_launch.report.recording import Recorder


NAME = "mcjax-launch"
#: A shell sets it to ask how a command line goes on.
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
    are filled in.

    D is a duration: 90, 90s, 5m, 1h30m or 1d. RANKS is a set of ranks: 0 or 0,4-7. Every option
    can also be set in the environment as MCJAX_<OPTION>, for example MCJAX_LOG_DIR.
    """
    options = Options(**values)
    try:
        return _emit(options, context) if options.emit is not None else _run(options, context)
    except LaunchError as error:
        from mcjax_launch.cli.usage_errors import with_variable

        message = with_variable(str(error), context)
        if options.emit is None and request.on_github(options, os.environ):
            from mcjax_launch.console import github

            _write(github.command("error", message, title="mcjax-launch"))
        raise LaunchError(message, error.status) from None


def _emit(options: Options, context: click.Context) -> int:
    from mcjax_launch.cli.emission import emission

    text = emission(options, context)
    combinations.check(options, context, os.environ)
    _warn(options, context)
    _print(text)
    return 0


def _warn(options: Options, context: click.Context) -> None:
    for warning in warnings(options, context, os.environ):
        _say(warning)


def _run(options: Options, context: click.Context) -> int:
    say = _ignore if options.quiet else _say
    combinations.check(options, context, os.environ)
    _warn(options, context)
    hosts = find_hosts(options, os.environ)
    job = request.make_job(options, hosts, this_machine.look_up(options, hosts, say))
    if this_machine.runs_here(hosts) and not job.sync:
        check_program(job, hosts)
    if options.verbose and job.is_python:
        say(this_machine.described_python(job, hosts))
    hosts = tuple(used_hosts(job.processes_here, hosts))
    style = request.make_style(options, job, os.environ)
    if options.report is not None:
        from mcjax_launch.report import write

        write.check(options.report)
    if options.junit is not None:
        from mcjax_launch.report import files

        files.check("--junit", options.junit)
    if options.log_dir is not None:
        from mcjax_launch.console.log_files import check_folder

        placeholders.check_path("--log-dir", options.log_dir)
        check_folder(options.log_dir)
    if job.profile is not None and not options.dry_run:
        from mcjax_launch.report import profile

        profile.prepare(job.profile)
    if options.dry_run:
        from mcjax_launch.cli.dry_run import script

        _print(script(job, hosts))
        return 0
    if job.pdb:
        this_machine.check_terminal()
    return _run_job(job, hosts, style, options, context)


def _run_job(
    job: Job, hosts: Sequence[Host], style: Style, options: Options, context: click.Context
) -> int:
    """Run the job, and have written down what the user wants to be; the exit status."""
    run = functools.partial(
        run_job,
        job,
        hosts,
        options.via or default_via(options, os.environ),
        style,
        log_dir=options.log_dir,
    )
    status = _reported(run, job, options, context)
    if job.profile is not None:
        from mcjax_launch.report import profile

        here = all(host.is_local for host in hosts)
        for line in profile.merge(job.profile, job.ranks_here, here):
            if not options.quiet:
                _say(line)
    return status


def _reported(
    run: Callable[..., Outcome], job: Job, options: Options, context: click.Context
) -> int:
    recorders = tuple(_recorders(job, options, context))
    if not recorders:
        return run().status
    from mcjax_launch.report.recording import recorded

    return recorded(run, recorders).status


def _recorders(job: Job, options: Options, context: click.Context) -> "Iterator[Recorder]":
    """Those who write down what happens, in the order in which they do."""
    if request.on_github(options, os.environ):
        from mcjax_launch.report.github import Annotations

        yield Annotations(_write, os.environ.get("GITHUB_WORKSPACE") or os.getcwd())
    if options.junit is not None:
        from mcjax_launch.report.junit import JUnit

        yield JUnit(options.junit, job, _say)
    if options.report is not None:
        from mcjax_launch.cli.given_options import command_line
        from mcjax_launch.report.write import Report

        words = command_line(context, options).words()
        yield Report(options.report, job, words, _say, options.quiet)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    try:
        return _run_command(argv)
    finally:
        with contextlib.suppress(OSError, AttributeError):  # gone, or never there
            sys.stdout.flush()


def _run_command(argv: Sequence[str] | None) -> int:
    """The one error handler."""
    try:
        if COMPLETE in os.environ:
            from mcjax_launch.cli.completion import complete

            return complete(command, NAME, COMPLETE)
        # The command's own status; --help and --version return 0.
        return int(command.main(argv, prog_name=NAME, standalone_mode=False) or 0)
    except LaunchError as error:
        _say(str(error))
        return error.status
    except click.ClickException as error:
        from mcjax_launch.cli.usage_errors import in_one_line

        _say(in_one_line(error))
        return exit_status.USAGE
    except (click.Abort, KeyboardInterrupt):
        return exit_status.of_signal(signal.SIGINT)
    except (BrokenPipeError, SystemExit):  # click leaves so when nobody reads --help
        return exit_status.READER_GONE
    except Exception as error:
        import traceback

        path = save_traceback(traceback.format_exc())
        _say(f"internal error: {error!r}; please report {path}")
        return exit_status.INTERNAL_ERROR


def _print(text: str) -> None:
    """Print text to stdout as the bytes that it was made of, whatever the encoding there."""
    click.echo(os.fsencode(text), nl=False)


def _say(message: str) -> None:
    _write(f"mcjax-launch: {one_line(message)}\n")


def _write(lines: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, lines.encode("utf-8", "replace"))


def _ignore(message: str) -> None:
    """What is said with --quiet."""

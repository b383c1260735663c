"""The click command, and the only handler of all its errors.

Every run waits for the imports of this module; modules that only some runs need are imported later.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mcjax_launch.cli.help import WORDS, GroupedCommand
from mcjax_launch.cli.options import GROUPS, PROGRAM
from mcjax_launch.cli.origins import list_options_from, list_set_options
from mcjax_launch.cli.warnings import find_misplaced_options, find_warnings, get_own_words
from mcjax_launch.cli.words import check_once, explain_swallowed_program
from mcjax_launch.errors import LaunchError, save_traceback
from mcjax_launch.events.events import NO_EVENTS, Events
from mcjax_launch.options.option import PROJECT_FILE
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import find_removed_variables
from mcjax_launch.request import combinations, ready, this_machine
from mcjax_launch.request.coordinates import find_program_name, reads_coordinates
from mcjax_launch.request.this_machine import is_on_github
from mcjax_launch.transport import early
from mcjax_launch.wire import exit_status
from mcjax_launch.wording import format_one_line

if TYPE_CHECKING:
    from mcjax_launch.detached.standby import Standby
    from mcjax_launch.diagnosis.attempt import JobOutcome
    from mcjax_launch.events.client import Client
    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.launcher.front import Front
    from mcjax_launch.report.recording import Recorder


NAME = "mcjax-launch"
#: Set by a shell that asks for completion.
COMPLETE = "_MCJAX_LAUNCH_COMPLETE"
# Texts in the message of a job whose program got too few arguments, and what may be missing.
_TOO_FEW = (
    *("IndexError", "not enough values to unpack", "exit status 2", "sys.exit(2)"),
    *("invalid literal for int()", "Missing mandatory value", "is not in struct"),
)
_COORDINATES = "{process_id}, {num_processes} and {coordinator}"
# A file in every container of Kubernetes, which reads it when the container ends.
_TERMINATION_LOG = "/dev/termination-log"


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

    D is a duration: 90, 90s, 5m, 1h30m or 1d. RANKS is a set of ranks: 0 or 0,4-7. Every option
    can also be set in the environment as MCJAX_<OPTION>, for example MCJAX_LOG_DIR.
    """
    options = Options(**values)
    client = context.obj
    events: Events = NO_EVENTS
    try:
        for line in () if client else find_removed_variables(os.environ):
            raise LaunchError(line)
        if options.jobs or options.stop or options.wait or options.attach is not None:
            return _run_detached_action(options, context)
        options = with_project_options(options, context)
        if options.check:
            return _check(options, context)
        if not options.program and client is None and not options.interactive:
            _refuse_swallowed_program(context)
        if options.emit is not None:
            return _emit(options, context)
        if options.interactive:
            return _interact(options, context)
        job_id = os.environ.pop(early.DETACHED, "")
        if options.detach and not options.dry_run and not job_id:
            return _detach(options, context)
        if client is None:
            _approve(options, context)
        # The starter of a detached job may be gone before a FIFO has a reader.
        events = _make_events(options, client, None if job_id else _say)
        if client is None:
            return _run(options, context, events, job_id)
        from mcjax_launch.cli import serving

        names = list_options_from(context, ParameterSource.COMMANDLINE)
        return serving.run(client, options, names, events, _say)
    except LaunchError as error:
        from mcjax_launch.cli.usage_errors import as_typed, with_origins

        message = as_typed(with_origins(str(error), context, error.status), context)
        if options.emit is None and client is None and is_on_github(os.environ):
            from mcjax_launch.report import github

            _write(github.format_command("error", message))
        events.report_failed_start(options.program, error.status, message)
        if client is not None:  # which raises it
            return error.status
        raise LaunchError(message, error.status) from None
    except Exception as error:
        status, message = exit_status.INTERNAL_ERROR, f"internal error: {error!r}"
        events.report_failed_start(options.program, status, message)
        raise
    finally:
        events.finish()


def _make_events(
    options: Options, client: "Client | None", say: "Callable[[str], object] | None"
) -> Events:
    """Return the receiver of the job's events.

    Args:
        options: options of the command line.
        client: the program that reads the events; None if there is none.
        say: see `EventsTarget`.

    """
    if options.events is None or options.dry_run:
        return NO_EVENTS
    from mcjax_launch.events.opening import EventsTarget

    target = EventsTarget(options.events, say)
    if client is None:
        from mcjax_launch.events.stream import EventStream

        return EventStream(target)
    from mcjax_launch.events.client import ClientStream

    return ClientStream(target, client)


def with_project_options(options: Options, context: click.Context) -> Options:
    """Return the options, with those of the folder's project; the API's client has none."""
    if context.obj is not None or not os.path.exists(PROJECT_FILE):
        return options
    from mcjax_launch.cli import project

    completed = project.complete(options, context)
    if line := project.describe_commands(completed, context):
        _say(line)  # also with --quiet: a cloned repository's file has chosen what runs
    return completed


def _run_detached_action(options: Options, context: click.Context) -> int:
    """Run --attach, --jobs, --stop or --wait; return the exit status."""
    from mcjax_launch.request import detached

    check_once(context.meta[WORDS], context.command.params)
    given = frozenset(list_options_from(context, ParameterSource.COMMANDLINE))
    note = detached.check_action(options, given)
    if note and not options.quiet:
        _say(note)
    if options.jobs:
        from mcjax_launch.cli.listing import list_jobs

        return list_jobs(as_json=options.json)
    if options.stop is not None:
        from mcjax_launch.cli.detached_jobs import stop

        return stop(options.stop, _say)
    if options.wait is not None:
        from mcjax_launch.cli.detached_jobs import wait

        return wait(options.wait, options.timeout if "timeout" in given else None)
    from mcjax_launch.cli.detached_jobs import attach

    return attach(options.attach or "", _say, quiet=options.quiet)


def _detach(options: Options, context: click.Context) -> int:
    """Check the options and start a detached job; return the exit status."""
    from mcjax_launch.cli.detaching import detach
    from mcjax_launch.request.detached import check_detach

    check_detach(options, frozenset(list_options_from(context, ParameterSource.COMMANDLINE)))
    _approve(options, context, warn=False)  # the detached launcher prints warnings
    return detach(options, context.meta[WORDS])


def rewrite_words(options: Options, context: click.Context) -> list[str]:
    """Return the command line with options from the environment and the project written out."""
    from mcjax_launch.job.describe import make_command_line

    return make_command_line(options, list_set_options(context))


def _emit(options: Options, context: click.Context) -> int:
    from mcjax_launch.schedulers import emit
    from mcjax_launch.schedulers.submission import make_submission

    text = emit(make_submission(options, list_set_options(context)))
    _approve(options, context)
    _print(text)
    return 0


def _interact(options: Options, context: click.Context) -> int:
    from mcjax_launch.cli.interactive import interact

    _approve(options, context)
    return interact(options, context)


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
            _say(line)
    for line in find_warnings(options, context, os.environ):
        _say(line)


def _run(options: Options, context: click.Context, events: Events, job_id: str) -> int:
    """Run a job; `job_id` is "" unless its starter has detached this launcher."""

    def say(line: str) -> None:
        events.report("note", text=line, level="note")
        if not options.quiet:
            _say(line)

    if options.watch:
        return _watch(options, context, events)
    job, hosts = ready.prepare(options, os.environ, say)
    if options.dry_run:
        from mcjax_launch.job.describe import format_dry_run_here

        _print(format_dry_run_here(job, hosts))
        return 0
    if not job_id:
        return _run_job(options, context, events, job, hosts).status
    if this_machine.runs_here(hosts) and not job.sync:
        from mcjax_launch.cli.detaching import check_syntax

        check_syntax(job)
    front, standby = _make_detached_front(job_id)
    context.call_on_close(standby.close)  # once all events have been written
    standby.describe(job.program, job.num_processes, [host.name for host in hosts])
    job = job.copy_with(job_id=job_id)
    with standby.recording():
        outcome = _run_job(options, context, events, job, hosts, front)
        standby.record_end(outcome.status, outcome.message)
    return outcome.status


def _watch(options: Options, context: click.Context, events: Events) -> int:
    """Run a job again after each save; return the exit status."""
    from mcjax_launch.cli.watching import run_again

    if options.pdb:
        this_machine.check_terminal()
    events.open()

    def run(job: "Job", hosts: "Sequence[Host]", front: "Front") -> int:
        try:
            return _report_errors(
                lambda: _run_job(options, context, events, job, hosts, front).status,
                front.leave_if_held,
            )
        finally:
            events.finish()

    given = Options(**context.params)
    return run_again(lambda: with_project_options(given, context), run, _say)


def _make_detached_front(job_id: str) -> "tuple[Front, Standby]":
    """Return the Front (loop, signals, outputs) of a detached job's launcher, and its Standby."""
    from mcjax_launch.detached.standby import Standby
    from mcjax_launch.launcher.entry import make_own_front

    front = make_own_front()
    standby = Standby(job_id, front.loop)
    front.detach(standby)
    return front, standby


def _run_job(
    options: Options,
    context: click.Context,
    events: Events,
    job: "Job",
    hosts: "Sequence[Host]",
    front: "Front | None" = None,
) -> "JobOutcome":
    """Run a prepared job with its recorders, and print hints after a failure; see `ready.run`."""
    if options.pdb:
        this_machine.check_terminal()
    events.open()

    def say(line: str) -> None:
        events.report("note", text=line, level="say")
        _say(line)

    recorders = list(_make_recorders())
    if events.is_read:
        from mcjax_launch.report.ending import RunEnding

        recorders.append(ending := RunEnding())
    outcome = ready.run(
        job,
        hosts,
        lambda: rewrite_words(options, context),
        say,
        events=events,
        front=front,
        recorders=recorders,
    )
    if outcome.status and not options.quiet:
        for line in _find_argument_hints(outcome, job, options, context):
            say(line)
    if events.is_read:
        events.report("summary", **ending.make_summary_fields(outcome))
    return outcome


def _find_argument_hints(
    outcome: "JobOutcome", job: "Job", options: Options, context: click.Context
) -> "Iterator[str]":
    """Yield hints about wrong arguments of a program that has failed."""
    yield from find_misplaced_options(options, context, outcome)
    if not outcome.failed_early:
        return
    if not any(mark in outcome.message for mark in _TOO_FEW):
        return
    if program := job.suggest_program():
        import shlex

        line = shlex.join([NAME, *get_own_words(options, context)])
        yield f"hint: {find_program_name(job)} needs arguments: {line} {' '.join(program)}"
    elif reads_coordinates(job):
        yield f"hint: in PROGRAM's arguments, {_COORDINATES} are replaced by each rank's own"


def _make_recorders() -> "Iterator[Recorder]":
    """Yield recorders for GitHub Actions and Kubernetes, if the command runs there."""
    if os.path.isfile(_TERMINATION_LOG):
        from mcjax_launch.report.recording import TerminationMessage

        yield TerminationMessage(_TERMINATION_LOG)
    if is_on_github(os.environ):
        from mcjax_launch.report.github import Annotations

        yield Annotations(_write, os.environ.get("GITHUB_WORKSPACE") or os.getcwd())


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
    from mcjax_launch.events.client import pop_client

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

    return _report_errors(run, lambda: None)


def _report_errors(run: Callable[[], int], before: Callable[[], object]) -> int:
    """Run a function; call `before` and print one line for an error; return the exit status."""
    try:
        return run()
    except LaunchError as error:
        before()
        _say(str(error))
        return error.status
    except click.ClickException as error:
        from mcjax_launch.cli.usage_errors import in_one_line

        _say(in_one_line(error))
        return exit_status.USAGE
    except (click.Abort, KeyboardInterrupt):
        return exit_status.compute_signal_status(signal.SIGINT)
    except (BrokenPipeError, SystemExit):  # click exits like this if --help has no reader
        return exit_status.READER_GONE
    except Exception as error:
        import traceback

        path = save_traceback(traceback.format_exc())
        before()
        _say(f"internal error: {error!r}; please report {path}")
        return exit_status.INTERNAL_ERROR


def _print(text: str) -> None:
    """Print text to stdout as the bytes that it was decoded from, in any encoding of stdout."""
    click.echo(os.fsencode(text), nl=False)


def _say(message: str) -> None:
    _write(f"mcjax-launch: {format_one_line(message)}\n")


def _write(lines: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, lines.encode("utf-8", "replace"))

"""--check: from the options to a check, and to its lines, its file and its exit status."""

import json
import os
import shutil
import sys
import time

import click

from mcjax_launch.check import report, run, table
from mcjax_launch.check.judgement import judge, passed
from mcjax_launch.check.survey import Interrupted
from mcjax_launch.cli.given_options import command_line
from mcjax_launch.console.style import wants_colour
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.plan import used_hosts
from mcjax_launch.options.options import Options
from mcjax_launch.protocol import exit_status
from mcjax_launch.report import files
from mcjax_launch.request import this_machine
from mcjax_launch.request.hosts import find_hosts
from mcjax_launch.request.job import make_job

# In a file or a pipe, and at the most on a terminal: longer lines are hard to read.
_WIDTH = 100
# What stands for PROGRAM: the ranks' Python is looked for as for a file.
_PROGRAM = ("check.py",)


def check(options: Options, context: click.Context) -> int:
    """Check the hosts, and print what has been found; the exit status.

    Args:
        options: checked.
        context: click's.

    Raises:
        LaunchError: the options do not fit this machine, or the report cannot be written.

    """
    words = command_line(context, options).words()
    options = options.replaced(program=_PROGRAM, module=False, sync=(), stdin=None, show=None)
    hosts = find_hosts(options, os.environ)
    here = this_machine.look_up(options, hosts, os.environ, lambda text: None)
    job = make_job(options, hosts, here)
    hosts = tuple(used_hosts(job.processes_here, hosts))
    if options.report is not None:
        _check_report(options.report)
    began = time.time()
    try:
        found = run.run(job, hosts, _ignore if options.quiet else _say)
    except Interrupted as interrupted:
        status = exit_status.of_signal(interrupted.signum)
        if interrupted.said:
            return status
        raise LaunchError(f"stopped by {interrupted}", status) from None
    steps = judge(found)
    if options.report is not None:
        host = os.uname().nodename
        _write(options.report, report.as_json(found, steps, words, began=began, host=host))
    if options.quiet:
        wrong = [step for step in steps if step.verdict != "ok"]
        shown = table.step_lines(wrong, _width())
    else:
        shown = table.lines(found, steps, _width())
    if wants_colour(options.color, sys.stdout.isatty(), os.environ):
        shown = [table.coloured(line) for line in shown]
    for line in shown:
        click.echo(line, color=True)
    return 0 if passed(steps) else exit_status.FAILED


def _say(text: str) -> None:
    """Say what takes a while, to a person who waits for it."""
    if sys.stderr.isatty():
        click.echo(f"mcjax-launch: {text}", err=True)


def _ignore(text: str) -> None:
    """What is said with --quiet."""


def _width() -> int:
    if not sys.stdout.isatty():
        return _WIDTH
    return min(shutil.get_terminal_size((80, 24)).columns, _WIDTH)


def _check_report(path: str) -> None:
    if not path.lower().endswith(".json"):
        raise LaunchError(f"--report {path}: with --check the name must end in .json")
    if "{" in path:
        raise LaunchError(f"--report {path}: --check fills in no placeholders")
    files.check(path)


def _write(path: str, data: report.Json) -> None:
    try:
        files.replace(os.path.realpath(path), f"{json.dumps(data, allow_nan=False)}\n")
    except OSError as error:
        raise LaunchError(f"--report {path}: cannot be written: {error.strerror}") from None

"""--check: check of the hosts, with printed lines, a JSON report and an exit status."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence

import click

from mcjax_launch.check import run
from mcjax_launch.check.judgement import Judgement, format_lines, has_errors
from mcjax_launch.console.prefix import wants_colour
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.plan import count_ranks_by_host
from mcjax_launch.job.program_copies import list_source_paths
from mcjax_launch.journal import optional
from mcjax_launch.options import features as declared
from mcjax_launch.options.option import without_values
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import format_count
from mcjax_launch.request import this_machine
from mcjax_launch.request.combinations import FOR_CHECK
from mcjax_launch.request.hosts import find_hosts
from mcjax_launch.request.job import make_job
from mcjax_launch.wire import exit_status

#: Version of the file's format; goes up when a field changes its meaning or is removed.
VERSION = 3
# In place of PROGRAM: the ranks' Python is found as for a file.
_PROGRAM = ("check.py",)


def check(options: Options, words: Callable[[], Sequence[str]]) -> int:
    """Check the hosts, print the findings, and return the exit status.

    Args:
        options: checked options.
        words: returns the command line, for the report.

    Raises:
        LaunchError: the options do not fit this machine, the user has stopped the check, or the
            report cannot be written.

    """
    if options.report is not None:
        _check_path(options.report)
    began = time.monotonic()
    findings, of_what = _run(options)
    seconds = time.monotonic() - began
    if options.report is not None:
        _write(options.report, record(findings, words(), seconds))
    _print(findings, f"{of_what}, in {seconds:.1f} s", options)
    return exit_status.FAILED if has_errors(findings) else 0


def _check_path(path: str) -> None:
    """Refuse a --report path that is not *.json, has placeholders, or cannot be written."""
    if not path.lower().endswith(".json"):
        raise LaunchError(f"--report {path}: the report of --check is JSON; name it *.json")
    optional.load_for("--report", "report.files").check_writable(path)
    if "{" in path:
        raise LaunchError(f"--report {path}: --check does not fill in placeholders")


def _run(options: Options) -> tuple[list[Judgement], str]:
    """Run the check; return its findings, and its size in words, such as "4 ranks on 2 hosts"."""
    # Ignore variables that set options of other command lines.
    used = {name: getattr(options, name) for name in FOR_CHECK - {"module"}}
    program = run.NO_PROGRAM
    if options.program and not options.sync:  # else a job would send it
        paths = list_source_paths(options)
        name = options.program[0] if options.module else paths[0]
        program = run.CheckedProgram(name, paths, options.module)
    options = Options(**used, program=_PROGRAM)
    hosts = find_hosts(options, os.environ)
    here = this_machine.collect_facts(options, hosts, os.environ, lambda text: None)
    job = make_job(options, hosts, here)
    hosts = tuple(count_ranks_by_host(job.processes_here, hosts))
    job = declared.complete(job, declared.Where(hosts, os.environ, None))
    say = (lambda text: None) if options.quiet else _say
    findings = run.run(job, hosts, say, program)
    return (
        findings,
        f"{format_count(job.num_processes, 'rank')} on {format_count(len(hosts), 'host')}",
    )


def _say(text: str) -> None:
    """Print a line on the progress of the check, if stderr is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"mcjax-launch: {text}", err=True)


def _print(findings: Sequence[Judgement], of_what: str, options: Options) -> None:
    """Print findings and a last line, with errors in red; with --quiet only problems."""
    shown = [finding for finding in findings if finding.verdict != "ok" or not options.quiet]
    if not shown:
        return
    last = f"{'FAILED' if has_errors(findings) else 'passed'}: {of_what}"
    coloured = wants_colour(options.color, sys.stdout.isatty(), os.environ)
    for line in [*format_lines(shown), "", last]:
        word, space, rest = line.partition(" ")
        if coloured and word in ("error", "FAILED:"):
            word = click.style(word, fg="red", bold=True)
        click.echo(f"{word}{space}{rest}", color=True)


def record(
    findings: Sequence[Judgement], words: Sequence[str], seconds: float
) -> dict[str, object]:
    """Return the content of the --report file, as docs/hosts.md describes it."""
    return {
        "format": "mcjax-launch check",
        "version": VERSION,
        "command": ["mcjax-launch", *without_values(words)],
        "seconds": round(seconds, 3),
        "passed": not has_errors(findings),
        "findings": [
            {name: getattr(finding, name) for name in finding._fields} for finding in findings
        ],
    }


def _write(path: str, content: dict[str, object]) -> None:
    try:
        optional.load_for("--report", "report.files").replace(path, f"{json.dumps(content)}\n")
    except OSError as error:
        raise LaunchError(f"--report {path}: cannot be written: {error.strerror}") from None

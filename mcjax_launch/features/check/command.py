"""--check: check of the hosts, with printed lines, a JSON report and an exit status."""

import json
import os
import sys
import time
from collections.abc import Sequence, Set

import click

from mcjax_launch.cli.command_line import CommandLine
from mcjax_launch.console.prefix import wants_colour
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.check import run
from mcjax_launch.features.check.run import Judgement, format_lines, has_errors
from mcjax_launch.job.plan import count_ranks_by_host
from mcjax_launch.job.program_copies import list_source_paths
from mcjax_launch.options import features as declared
from mcjax_launch.options.option import without_values
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import format_count
from mcjax_launch.request import this_machine
from mcjax_launch.request.hosts import find_hosts
from mcjax_launch.request.ready import make_job
from mcjax_launch.wire import exit_status

#: Version of the file's format; goes up when a field changes its meaning or is removed.
VERSION = 3
# Options that have an effect on --check.
_HAVE_EFFECT = frozenset(
    {"check", "module", "num_processes", "python", "chdir", "env", "env_file", "no_hook"}
    | {"cpu_devices", "gpus_per_process", "tpu_chips_per_process", "cpu_transfers", "bind_cores"}
    | {"hosts", "procs_per_host", "via", "slices", "coordinator", "mtls"}
    | {"color", "quiet", "verbose", "timeout", "start_timeout", "grace"}
)
# In place of PROGRAM: the ranks' Python is found as for a file.
_PROGRAM = ("check.py",)


def act(line: CommandLine) -> int:
    """Check the hosts, print the findings, and return the exit status.

    Args:
        line: the command line.

    Raises:
        LaunchError: the options do not fit this machine, the user has stopped the check, or the
            report cannot be written.

    """
    options = line.options
    _check_options(options, line.given)
    line.approve(warns=not options.quiet, needs_program=False)
    report = declared.get(options, "report")
    if report is not None:
        _check_path(report)
    began = time.monotonic()
    findings, of_what = _run(options)
    seconds = time.monotonic() - began
    if report is not None:
        _write(report, record(findings, line.rewrite(), seconds))
    _print(findings, f"{of_what}, in {seconds:.1f} s", options)
    return exit_status.FAILED if has_errors(findings) else 0


def _check_options(options: Options, given: Set[str]) -> None:
    """Refuse options that have no effect on a check."""
    if options.program and not list_source_paths(options):
        raise LaunchError(
            f"--check compares the hosts' copies of a Python file or, with -m, of a module; leave "
            f"out {options.program[0]}"
        )
    for name in sorted(given - _HAVE_EFFECT - {"program", "report"}):
        raise LaunchError(f"--check cannot be combined with --{name.replace('_', '-')}")


def _check_path(path: str) -> None:
    """Refuse a --report path that is not *.json, has placeholders, or cannot be written."""
    if not path.lower().endswith(".json"):
        raise LaunchError(f"--report {path}: the report of --check is JSON; name it *.json")
    declared.load("report_file").check_writable(path)
    if "{" in path:
        raise LaunchError(f"--report {path}: --check does not fill in placeholders")


def _run(options: Options) -> tuple[list[Judgement], str]:
    """Run the check; return its findings, and its size in words, such as "4 ranks on 2 hosts"."""
    # Ignore variables that set options of other command lines.
    names = Options.declared.keys() & _HAVE_EFFECT - {"module"}
    used = {name: getattr(options, name) for name in names}
    program = run.NO_PROGRAM
    if options.program and not options.sync:  # else a job would send it
        paths = list_source_paths(options)
        name = options.program[0] if options.module else paths[0]
        program = run.CheckedProgram(name, paths, options.module)
    options = Options(**used, program=_PROGRAM)
    hosts = find_hosts(options, os.environ)
    here = this_machine.collect_facts(options, hosts, os.environ, lambda text: None)
    job = make_job(options, hosts, here).copy_with(awaits_failures=True)
    hosts = tuple(count_ranks_by_host(job.processes_here, hosts))
    job = declared.complete(job, declared.Where(hosts, os.environ, lambda text: None, None))
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
        declared.load("report_file").replace(path, f"{json.dumps(content)}\n")
    except OSError as error:
        raise LaunchError(f"--report {path}: cannot be written: {error.strerror}") from None

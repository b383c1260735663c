"""Preparation of a job from options, and its run.

Every run waits for the imports of this module; modules that only some runs need are imported later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job, check_ranks
from mcjax_launch.job.plan import count_ranks_by_host
from mcjax_launch.journal.events import NO_EVENTS, Events
from mcjax_launch.launcher.entry import run as run_job
from mcjax_launch.options import features as declared
from mcjax_launch.options.kinds import check_slices
from mcjax_launch.options.options import Options
from mcjax_launch.options.wrappers import Wrapper, parse
from mcjax_launch.ranks import MOST_RANKS
from mcjax_launch.request import ranks_python, this_machine
from mcjax_launch.request.hosts import describe_allocation, describe_unused_way, find_hosts
from mcjax_launch.request.program import check_pipe, check_program
from mcjax_launch.request.this_machine import ThisMachine

if TYPE_CHECKING:
    from mcjax_launch.journal.attempt import JobOutcome
    from mcjax_launch.journal.journal import Journal
    from mcjax_launch.launcher.front import Front
    from mcjax_launch.options.options import Options


Say = Callable[[str], object]


def prepare(options: Options, environ: Mapping[str, str], say: Say) -> tuple[Job, tuple[Host, ...]]:
    """Make a checked job from options; return the job and the hosts that get ranks.

    Each step has what the earlier ones have found: options, hosts, this machine, the job. The plan
    comes last, in the launcher, because only the hosts know their devices (job/plan.py).

    Args:
        options: the user's request, already checked by `combinations`.
        environ: variables of this process.
        say: called with each line to print: on long waits, and for --verbose.

    Raises:
        LaunchError: the job cannot be run.

    """
    explain = say if options.verbose else None
    found = find_hosts(options, environ)
    sizes: tuple[int, ...] = ()
    if lone := declared.find_choice(options):
        sizes, found = lone.compute_sizes(options, found), (Host(name=LOCAL, slots=MOST_RANKS),)
    here = this_machine.collect_facts(options, found, environ, say)
    job = make_job(options, found, here, sizes)
    if lone:
        job = lone.choose_ranks(job, sizes)
    for line in (
        *describe_allocation(options, environ, found, job.via),
        *describe_unused_way(options, found),
    ):
        say(line)
    check_pipe(job)
    if this_machine.runs_here(found) and not job.sync and not declared.find_first(job):
        check_program(job, found)
    if explain is not None and job.is_python:
        explain(ranks_python.describe(job, found))
    _check_files(options)
    hosts = tuple(count_ranks_by_host(job.processes_here, found))
    return declared.complete(job, declared.Where(hosts, environ, say, explain)), hosts


def _check_files(options: Options) -> None:
    """Refuse output files and folders of options that cannot be written."""
    if options.log_dir is not None:
        from mcjax_launch.console.log_files import check_folder

        placeholders.check_path("--log-dir", options.log_dir)
        check_folder(options.log_dir)


def run(
    job: Job,
    hosts: Sequence[Host],
    words: Callable[[], Sequence[str]],
    say: Say,
    *,
    journal: Journal,
    events: Events = NO_EVENTS,
    front: Front | None = None,
) -> JobOutcome:
    """Run a job, write its report if requested, and return its outcome.

    Args:
        job: job from `prepare`.
        hosts: hosts from `prepare`.
        words: returns the command line for the report.
        say: prints a line of the launcher.
        journal: facts of the job; the caller adds the outcome, also for an error.
        events: the reader of the journal that writes events.
        front: the launcher's signals, loop and outputs, if already made; None to make them.

    Raises:
        LaunchError: the job could not be started.

    """
    for reader in declared.collect("make_readers", job, words, say, events.has_client):
        journal.add_reader(reader)
    return run_job(job, hosts, journal, events=events, front=front)


# --- construction of a Job from the options ---


def make_job(
    options: Options, hosts: Sequence[Host], here: ThisMachine, sizes: tuple[int, ...] = ()
) -> Job:
    """Make the Job that the options describe.

    Args:
        options: checked options.
        hosts: hosts with slots for ranks.
        here: facts that this machine adds to the options.
        sizes: with --preview, number of ranks on each host of the whole job.

    Raises:
        LaunchError: without -n the hosts have too many slots for a job; an option names a rank
            that does not exist; or the slices do not divide the ranks.

    """
    num_hosts = options.num_hosts or 1
    num_processes = _compute_num_processes(options, hosts, num_hosts)
    if sizes:
        num_processes = sum(sizes)
    check_ranks("--show", options.show or frozenset(), num_processes)
    completed: dict[str, object] = {
        "num_processes": num_processes,
        "num_hosts": num_hosts,
        "host_rank": options.host_rank or 0 if options.num_hosts else 0,
        "program": _replace_python(options, here.python.python),
        "python_given": options.python is not None,
        "chdir_given": options.chdir is not None,
        "hook": not options.no_hook,
        "wrappers": _parse_wrappers(options, num_processes),
    }
    return Job(**vars(options) | here._asdict() | here.python._asdict() | completed)


def _replace_python(options: Options, python: str) -> tuple[str, ...]:
    """Return PROGRAM and its arguments, `python` or `python3` replaced if --python is given.

    With -m, PROGRAM is a module, and never replaced.

    Args:
        options: options of the command line.
        python: path that --python was resolved to.

    """
    names_python = not options.module and options.program[:1] in (("python",), ("python3",))
    given = options.python is not None and names_python
    return (python, *options.program[1:]) if given else options.program


def _compute_num_processes(options: Options, hosts: Sequence[Host], num_hosts: int) -> int:
    num_processes = options.num_processes or _count_slots(hosts, num_hosts)
    try:
        check_slices(options.slices, num_processes)
    except ValueError as error:
        raise LaunchError(f"--slices {options.slices}: {error}") from None
    return num_processes


def _count_slots(hosts: Sequence[Host], num_hosts: int) -> int:
    """Return the job's number of slots: those of this launcher's hosts, times `num_hosts`.

    Args:
        hosts: hosts of this launcher.
        num_hosts: number of launchers (--num-hosts), each with equal slots; 1 without the option.

    Raises:
        LaunchError: a job cannot have so many ranks.

    """
    slots = sum(host.slots for host in hosts) * num_hosts
    if slots > MOST_RANKS:
        raise LaunchError(f"{slots} ranks: a job has {MOST_RANKS} at most; set -n")
    return slots


def _parse_wrappers(options: Options, num_processes: int) -> tuple[Wrapper, ...]:
    """Return the parsed values of --wrap; their ranks must exist."""
    wrappers = tuple(parse(text) for text in options.wrap)
    for wrapper in wrappers:
        check_ranks("--wrap", wrapper.ranks or frozenset(), num_processes)
    return wrappers

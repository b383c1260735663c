"""Preparation of a job from options, and its run.

Every run waits for the imports of this module; modules that only some runs need are imported later.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.events.events import NO_EVENTS, Events
from mcjax_launch.job import placeholders
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import count_ranks_by_host
from mcjax_launch.launcher.entry import run as run_job
from mcjax_launch.request import ranks_python, this_machine
from mcjax_launch.request.coordinates import complete_program, find_program_name, suggest_program
from mcjax_launch.request.hosts import describe_allocation, describe_unused_way, find_hosts
from mcjax_launch.request.job import make_job
from mcjax_launch.request.program import check_pipe, check_program

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.attempt import JobOutcome
    from mcjax_launch.launcher.front import Front
    from mcjax_launch.options.options import Options
    from mcjax_launch.report.recording import Recorder

Say = Callable[[str], object]

_EACH_HOST = "each host has its own launcher, and launchers share no certificate"


def prepare(options: Options, environ: Mapping[str, str], say: Say) -> tuple[Job, tuple[Host, ...]]:
    """Make a checked job from options; return the job and the hosts that get ranks.

    Args:
        options: the user's request, already checked by `combinations`.
        environ: variables of this process.
        say: called with each line to print: on long waits, and for --verbose.

    Raises:
        LaunchError: the job cannot be run.

    """
    job, hosts = find(options, environ, say)
    return complete(job, hosts, options, environ, say)


def find(options: Options, environ: Mapping[str, str], say: Say) -> tuple[Job, Sequence[Host]]:
    """Find the hosts and make the job, before the checks of `complete`; see `prepare`."""
    hosts = find_hosts(options, environ)
    job = make_job(options, hosts, this_machine.collect_facts(options, hosts, environ, say))
    for line in describe_allocation(options, environ, hosts, job.via):
        say(line)
    for line in describe_unused_way(options, hosts):
        say(line)
    return job, hosts


def complete(
    job: Job, hosts: Sequence[Host], options: Options, environ: Mapping[str, str], say: Say
) -> tuple[Job, tuple[Host, ...]]:
    """Complete and check a job from `find`, by the present files of PROGRAM; see `prepare`."""
    check_pipe(job)
    if this_machine.runs_here(hosts) and not job.sync and job.setup is None:
        check_program(job, hosts)
    job = _with_arguments(job, say)
    if options.verbose and job.is_python:
        say(ranks_python.describe(job, hosts))
    _check_files(options)
    hosts = tuple(count_ranks_by_host(job.processes_here, hosts))
    if job.mtls != "off":
        job = choose_mtls(job, hosts, environ, say if options.verbose else None)
    if job.preload == ("auto",):
        job = _without_needless_preload(job, hosts, say if options.verbose else None)
    return job, hosts


def _with_arguments(job: Job, say: Say) -> Job:
    """Add the missing arguments that PROGRAM passes to initialize(), and print the new command.

    If it is unclear which are missing, the job gets a function that finds a command for hints.
    """
    program = complete_program(job)
    if not program:
        suggest = functools.partial(suggest_program, job)
        return job.copy_with(suggest_program=functools.cache(suggest))
    shown = " ".join(("-m", *program) if job.module else program)
    say(f"{find_program_name(job)} takes its coordinates from its arguments: running {shown}")
    return job.copy_with(program=program)


def _without_needless_preload(job: Job, hosts: Sequence[Host], say: Say | None) -> Job:
    """Return the job, with --preload none if preloading cannot speed up its start."""
    from mcjax_launch.features.preload.choice import find_reason_against

    why = find_reason_against(job, hosts)
    if why and say is not None:
        say(f"--preload auto: {why}; the ranks are started afresh")
    return job.copy_with(preload=()) if why else job


def choose_mtls(
    job: Job, hosts: Sequence[Host], environ: Mapping[str, str], say: Say | None
) -> Job:
    """Return the job, with --mtls off if TLS is not possible or not needed.

    Args:
        job: job with --mtls auto or on.
        hosts: hosts that get ranks.
        environ: variables of this process.
        say: called with the reason if TLS is not possible; None to print none.

    Raises:
        LaunchError: --mtls on is given, and TLS is not possible.

    """
    if job.mtls == "auto" and len(hosts) == 1:
        alone = "the job runs on one host"
        return job.copy_with(mtls="off", mtls_reason=_EACH_HOST if job.num_hosts > 1 else alone)
    from mcjax_launch.request.mutual_tls import explain_no_tls

    why = explain_no_tls(job, environ)
    if why and say is not None:
        say(f"--mtls auto: {why}")
    return job.copy_with(mtls="off", mtls_reason=why) if why else job


def _check_files(options: Options) -> None:
    """Refuse output files and folders of options that cannot be written."""
    if options.report is not None:
        from mcjax_launch.report import files

        files.check_report(options.report)
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
    events: Events = NO_EVENTS,
    front: Front | None = None,
    recorders: Sequence[Recorder] = (),
) -> JobOutcome:
    """Run a job, write its report and its profile if requested, and return its outcome.

    Args:
        job: job from `prepare`.
        hosts: hosts from `prepare`.
        words: returns the command line for the report.
        say: prints a line of the launcher.
        events: receiver of the job's events.
        front: the launcher's signals, loop and outputs, if already made; None to make them.
        recorders: further recorders, called before the report's.

    Raises:
        LaunchError: the job could not be started.

    """
    if job.profile is not None:
        from mcjax_launch.features.profile import folders as profile

        profile.prepare(job.profile)
    start = functools.partial(run_job, job, hosts, events=events, front=front)
    if job.report is not None:
        from mcjax_launch.report.files import ReportWriter

        recorders = (*recorders, ReportWriter(job.report, job, words(), say, job.quiet))
    if not recorders:
        outcome = start()
    else:
        from mcjax_launch.report.recording import run_with_recorders

        outcome = run_with_recorders(start, recorders)
    if job.profile is not None:
        from mcjax_launch.features.profile import folders as profile

        here = all(host.is_local for host in hosts)
        for line in profile.merge(job.profile, job.ranks_here, here):
            if not job.quiet:
                say(line)
    return outcome

"""The whole check: a job whose ranks report what they find, and add up numbers of all devices."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Sequence

from mcjax_launch.errors import HostsFailed, LaunchError
from mcjax_launch.features.check import probe
from mcjax_launch.features.check.judgement import (
    Judgement,
    ProbeOutput,
    judge_folders,
    judge_hosts,
    judge_program,
    judge_reach,
    judge_silence,
    judge_sum,
    merge_findings,
)
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal.attempt import Attempt
from mcjax_launch.journal.ending import JobStopped
from mcjax_launch.journal.journal import Journal
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.launcher import entry
from mcjax_launch.launcher.front import Front
from mcjax_launch.ranks import format_count
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.signals import ENDING
from mcjax_launch.wire.value import Value

#: Variables of the check's programs: leave the GPUs' memory to jobs that may be running there.
OWN_VARIABLES = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# Default limits: ranks that do not find each other would wait for five minutes.
_START_S, _WHOLE_S = 60.0, 120.0


class CheckedProgram(Value):
    """The PROGRAM of a job, whose copies the check compares.

    Args:
        name: as the user has written it; "" for none.
        paths: paths at which a host may have it; see `program_copies.list_source_paths`.
        is_module: True if it may be in any folder of the ranks' sys.path.

    """

    name: str = ""
    paths: tuple[str, ...] = ()
    is_module: bool = False


NO_PROGRAM = CheckedProgram()


def run(
    job: Job,
    hosts: Sequence[Host],
    say: Callable[[str], object],
    program: CheckedProgram = NO_PROGRAM,
) -> list[Judgement]:
    """Run the check's job, and return all findings.

    If hosts cannot be reached or cannot run their ranks, the job runs on the other hosts.

    Args:
        job: job that a run without --check would start; its program does not matter.
        hosts: hosts of the job.
        say: called with progress messages.
        program: PROGRAM whose copies to compare.

    Raises:
        LaunchError: the user has ended the check.

    """
    front = entry.make_own_front()
    failed: dict[str, str] = {}
    while True:
        left = [host for host in hosts if host.name not in failed]
        if not left:
            return merge_findings(judge_reach(failed, []))
        say(f"checking {format_count(len(left), 'host')} ...")
        try:
            found = _run_job(job, left, front, program)
        except HostsFailed as error:
            reasons = {**failed, **error.reasons}  # in the order in which hosts failed
            failed = {host.name: reasons[host.name] for host in hosts if host.name in reasons}
        else:
            names = [host.name for host in left]
            return merge_findings([*judge_reach(failed, names), *found])


class _LastAttempt:
    """Reader of the journal that keeps how the job has ended."""

    attempt: Attempt | None = None

    def on_attempt(self, attempt: Attempt, at: float) -> None:
        """Keep an attempt."""
        self.attempt = attempt


def _run_job(
    job: Job, hosts: Sequence[Host], front: Front, program: CheckedProgram
) -> list[Judgement]:
    """Run the check's job on these hosts, and return what follows from what its ranks print.

    Raises:
        HostsFailed: some of the hosts cannot be reached, or cannot run their ranks.
        LaunchError: the user has ended the check.

    """
    ended, journal = _LastAttempt(), Journal()
    journal.add_reader(ended)
    checking = make_check_job(job, hosts, program)
    without_folders = [host.copy_with(chdir=None) for host in hosts]
    try:
        outcome = entry.run(checking, without_folders, journal, front=front)
        why_not = outcome.message if outcome.status else ""
    except HostsFailed:
        raise
    except LaunchError as error:
        why_not = str(error)
    ending = ended.attempt.summary.ending if ended.attempt else None
    signalled = map(exit_status.compute_signal_status, ENDING)
    if isinstance(ending, JobStopped) and ending.status in signalled:
        raise LaunchError("the check was not finished", ending.status)
    if ended.attempt and (places := ended.attempt.state.picture):
        why_not = f"{why_not}: {places}"
    ranks = list(ended.attempt.state.ranks.values()) if ended.attempt else []
    by_host = merge_by_host([(rank.host, _read_rank(rank)) for rank in ranks])
    return [
        *judge_silence([host.name for host in hosts if host.name not in by_host]),
        *judge_folders(by_host, {host.name: _get_folder(job, host) for host in hosts}),
        *judge_program(by_host, program.name),
        *judge_hosts(by_host),
        *judge_sum([parse_output(rank.stdout) for rank in ranks], why_not),
    ]


def _read_rank(rank: RankRun) -> ProbeOutput:
    """Return what a rank has printed, and why JAX uses the CPU there, if there are GPUs."""
    backend = rank.membership.backend
    return {**parse_output(rank.stdout), "why": backend.why if backend else ""}


def merge_by_host(ranks: Sequence[tuple[str, ProbeOutput]]) -> dict[str, ProbeOutput]:
    """Return what the ranks of each host have printed, with the devices of all ranks there.

    Args:
        ranks: the host of each rank, and what it has printed.

    """
    there: dict[str, ProbeOutput] = {}
    for host in dict.fromkeys(host for host, told in ranks if "python" in told):
        own = [told for name, told in ranks if name == host]
        there[host] = {
            **next(told for told in own if "python" in told),
            "devices": [kind for told in own for kind in told.get("devices", ())],
            "ranks": len(own),
        }
    return there


def _get_folder(job: Job, host: Host) -> str:
    """Return the working directory that the user has chosen for a host; "" for none."""
    if host.chdir and host.is_local:  # the program of the check runs elsewhere
        return os.path.abspath(os.path.expanduser(host.chdir))
    return host.chdir or (job.chdir if job.chdir_given else "")


def make_check_job(job: Job, hosts: Sequence[Host], checked: CheckedProgram = NO_PROGRAM) -> Job:
    """Return a copy of the job that runs the probe as its program, on these hosts.

    The probe looks for the copies of PROGRAM, if one is given.
    """
    program = os.path.abspath(probe.__file__)
    folders = {host.name: _get_folder(job, host) or job.chdir for host in hosts}
    wanted = {"folders": folders, "paths": checked.paths, "is_module": checked.is_module}
    own = {**OWN_VARIABLES, probe.HOST: "{host}", probe.WANTED: json.dumps(wanted)}
    return job.copy_with(
        program=(os.path.basename(program),),
        num_processes=sum(host.slots for host in hosts),
        chdir_given=False,
        env=(*own.items(), *job.env),
        sync=(program,),
        preload=(),  # a rank tells what its host has, and then imports jax
        show=frozenset(),
        quiet=not job.verbose,
        log_dir=None,
        timeout=job.timeout or _WHOLE_S,
        start_timeout=(job.start_timeout or _START_S) if job.hook else None,
        record=True,  # which keeps what ranks print
    )


def parse_output(text: str) -> ProbeOutput:
    """Return the values that the probe reported, from all that it printed."""
    told: ProbeOutput = {}
    for line in re.findall(f"{probe.MARK}(.*)", text):
        with contextlib.suppress(ValueError):  # other output in the middle of the line
            told.update(json.loads(line))
    return told

"""The whole check: a job whose ranks report what they find, and add up numbers of all devices."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from mcjax_launch.check import probe
from mcjax_launch.check.judgement import (
    Judgement,
    ProbeOutput,
    judge_hosts,
    judge_program,
    judge_reach,
    judge_silence,
    judge_sum,
    merge_findings,
)
from mcjax_launch.errors import HostsFailed, LaunchError
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
OWN_VARIABLES = (("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),)
# Default limits: ranks that do not find each other would wait for five minutes.
_START_S, _WHOLE_S = 60.0, 120.0


class CheckedProgram(Value):
    """The PROGRAM of a job, whose copies the check compares.

    Args:
        name: as the user has written it.
        paths: paths at which a host may have it; see `program_copies.list_source_paths`.
        is_module: True if it may be in any folder of the ranks' sys.path.

    """

    name: str
    paths: tuple[str, ...]
    is_module: bool = False


def run(
    job: Job,
    hosts: Sequence[Host],
    say: Callable[[str], object],
    program: CheckedProgram | None = None,
) -> list[Judgement]:
    """Run the check's job, and return all findings.

    If hosts cannot be reached or cannot run their ranks, the job runs on the other hosts.

    Args:
        job: job that a run without --check would start; its program does not matter.
        hosts: hosts of the job.
        say: called with progress messages.
        program: PROGRAM whose copies to compare; None for none.

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
    job: Job, hosts: Sequence[Host], front: Front, program: CheckedProgram | None
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
    told = [(rank.host, _parse_rank(rank)) for rank in ranks]
    folders = {host.name: _get_folder(job, host) for host in hosts}
    by_host = merge_by_host(told, folders)
    return [
        *judge_silence([host.name for host in hosts if host.name not in by_host]),
        *judge_hosts(by_host),
        *(judge_program(by_host, program.name, _list_starts(job, hosts)) if program else ()),
        *judge_sum([printed for _, printed in told], why_not),
    ]


def _parse_rank(rank: RankRun) -> ProbeOutput:
    """Return what a rank has printed, and bounds for how far its clock is ahead, in seconds."""
    told = parse_output(rank.stdout)
    began, came = rank.process.started_at, rank.process.first_output_at
    if "now" in told and began is not None and came is not None:
        offset = told["now"] - time.time() + time.monotonic()  # of its clock from time.monotonic
        told["ahead_s"] = offset - came, offset - began
    return told


def merge_by_host(
    ranks: Sequence[tuple[str, ProbeOutput]], folders: Mapping[str, str] = MappingProxyType({})
) -> dict[str, ProbeOutput]:
    """Return what the ranks of each host have printed, with the devices of all ranks there.

    Args:
        ranks: the host of each rank, and what it has printed.
        folders: the working directory that the user has chosen for each host; "" for none.

    """
    there: dict[str, ProbeOutput] = {}
    for host in dict.fromkeys(host for host, told in ranks if "packages" in told):
        own = [told for name, told in ranks if name == host]
        counts: Counter[tuple[str, str]] = Counter()
        for platform, kind, count in (kinds for told in own for kinds in told.get("devices", ())):
            counts[platform, kind] += count
        there[host] = {
            **next(told for told in own if "packages" in told),
            "devices": [(*kind, count) for kind, count in counts.items()],
            "gpus": sorted({gpu[0]: gpu for told in own for gpu in told.get("gpus", ())}.values()),
            "ranks": len(own),
            "folder": folders.get(host, ""),
        }
    return there


def _get_folder(job: Job, host: Host) -> str:
    """Return the working directory that the user has chosen for a host; "" for none."""
    if host.chdir and host.is_local:  # the program of the check runs elsewhere
        return os.path.abspath(os.path.expanduser(host.chdir))
    return host.chdir or (job.chdir if job.chdir_given else "")


def _list_starts(job: Job, hosts: Sequence[Host]) -> dict[str, str]:
    """Return the working directory of each host's ranks, by the host's name, if it exists there."""
    return {host.name: _get_folder(job, host) or job.chdir for host in hosts}


def make_check_job(job: Job, hosts: Sequence[Host], checked: CheckedProgram | None = None) -> Job:
    """Return a copy of the job that runs the probe as its program, on these hosts.

    The probe looks for the copies of PROGRAM if `checked` is given.
    """
    program = os.path.abspath(probe.__file__)
    starts = sorted({*_list_starts(job, hosts).values()})
    copies = ((), False) if checked is None else (checked.paths, checked.is_module)
    return job.copy_with(
        program=(os.path.basename(program),),
        num_processes=sum(host.slots for host in hosts),
        chdir_given=False,
        env=(*OWN_VARIABLES, (probe.WANTED, json.dumps([starts, *copies])), *job.env),
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

"""The whole check: a job whose ranks report what they find, and add up numbers of all devices."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from mcjax_launch.errors import HostsFailed, LaunchError
from mcjax_launch.features.check import probe
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.journal.attempt import Attempt
from mcjax_launch.journal.ending import JobStopped
from mcjax_launch.journal.journal import Journal
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.launcher import entry
from mcjax_launch.launcher.front import Front
from mcjax_launch.machine.interpreter import explain_old_jax
from mcjax_launch.options import features as declared
from mcjax_launch.ranks import format_count, group_by_key
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.exit_status import ENDING
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable, format_names

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
    job = job.copy_with(
        program=(os.path.basename(program),),
        num_processes=sum(host.slots for host in hosts),
        chdir_given=False,
        env=(*own.items(), *job.env),
        sync=(program,),
        show=frozenset(),
        quiet=not job.verbose,
        log_dir=None,
        timeout=job.timeout or _WHOLE_S,
        start_timeout=(job.start_timeout or _START_S) if job.hook else None,
        record=True,  # which keeps what ranks print
    )
    return declared.change(job, preload=())  # a rank tells what its host has, and then imports jax


def parse_output(text: str) -> ProbeOutput:
    """Return the values that the probe reported, from all that it printed."""
    told: ProbeOutput = {}
    for line in re.findall(f"{probe.MARK}(.*)", text):
        with contextlib.suppress(ValueError):  # other output in the middle of the line
            told.update(json.loads(line))
    return told


# --- judgements of what ranks print as ok, note, warning or error ---

ProbeOutput = dict[str, Any]

# --- findings, and their lines ---

Verdict = Literal["ok", "warning", "error"]


class Judgement(Value):
    """Finding of the check, with a verdict.

    Args:
        hosts: the names of the hosts that it is about; empty for the job as a whole.
        cure: advice; "" if there is none.

    """

    topic: str
    value: str
    hosts: tuple[str, ...] = ()
    verdict: Verdict = "ok"
    cure: str = ""


def merge_findings(findings: Iterable[Judgement]) -> list[Judgement]:
    """Merge equal findings about several hosts into one, at the place of the first."""
    same: dict[Judgement, list[str]] = {}
    for finding in findings:
        same.setdefault(finding.copy_with(hosts=()), []).extend(finding.hosts)
    return [finding.copy_with(hosts=tuple(hosts)) for finding, hosts in same.items()]


def has_errors(findings: Iterable[Judgement]) -> bool:
    """Return whether a job would not work."""
    return any(finding.verdict == "error" for finding in findings)


def format_lines(findings: Sequence[Judgement]) -> Iterator[str]:
    """Yield the findings as lines.

    A finding that is ok and equal on all hosts does not name them. A cure shared by consecutive
    findings appears after the last of them.
    """
    of_topic = Counter(finding.topic for finding in findings)
    for found, after in zip(findings, [*findings[1:], None], strict=True):
        named = found.hosts and (found.verdict != "ok" or of_topic[found.topic] > 1)
        value = f"{format_names(found.hosts)}: {found.value}" if named else found.value
        yield escape_unprintable(f"{found.verdict:<8} {found.topic:<12} {value}")
        if found.cure and (after is None or after.cure != found.cure):
            yield f"{'':22}- {escape_unprintable(found.cure)}"


# --- judging: a function for each topic ---

Hosts = Mapping[str, ProbeOutput]  # what the ranks of each host have printed, by the host's name
Text = Callable[[ProbeOutput], str]
Findings = Iterator[Judgement]


def judge_reach(reasons: Mapping[str, str], answered: Sequence[str]) -> Findings:
    """Judge which hosts are ready for their ranks; hosts that fail alike share a finding.

    Args:
        reasons: why a host was not reached, or cannot run its ranks, by its name.
        answered: names of the other hosts.

    """
    same = group_by_key((why.replace(name, "{host}"), name) for name, why in reasons.items())
    for failed in same.values():
        yield Judgement("reach", reasons[failed[0]], tuple(failed), "error")
    if answered:
        yield Judgement("reach", f"{len(answered)} of {len(answered) + len(reasons)} ready")


def judge_silence(hosts: Sequence[str]) -> Findings:
    """Judge hosts whose ranks ended before they had reported, as when another rank fails."""
    if hosts:
        value = "its ranks ended before they had reported anything"
        cure = "correct the other errors, and check again"
        yield Judgement("reach", value, tuple(hosts), "error", cure)


def judge_folders(hosts: Hosts, chosen: Mapping[str, str]) -> Findings:
    """Judge whether each host has the working directory that the user has chosen for it."""
    for name, told in hosts.items():
        if chosen[name] and not told["has_folder"]:
            cure = "make it, or choose another with -C or chdir="
            value = f"{chosen[name]}: no such directory"
            yield Judgement("reach", value, (name,), "error", cure)


def judge_program(hosts: Hosts, program: str) -> Findings:
    """Judge the hosts' copies of PROGRAM, which has this name; "" for none."""
    copies = {name: told for name, told in hosts.items() if program and told["checksum"]}
    if missing := tuple(name for name in hosts if program and name not in copies):
        cure = f"copy it there, or start the job with --sync {program}"
        yield Judgement("reach", f"{program} is not there", missing, "error", cure)
    cure = "make them equal, or start the job with --sync: ranks would run different programs"
    yield from compare_hosts(
        "reach", copies, lambda told: f"{program}, SHA-256 {told['checksum'][:12]}", "error", cure
    )


def judge_hosts(hosts: Hosts) -> Findings:
    """Judge what the ranks' Python finds on each host."""
    if len({told["python"] for told in hosts.values()}) > 1:
        yield from compare_hosts("python", hosts, lambda told: f"{told['python']}")
    else:
        yield from judge_each("python", hosts, lambda told: f"{told['python']}, {told['path']}")
    cure = "install the same version on all hosts: otherwise ranks may wait in vain for 300 s"
    yield from compare_hosts("jax", hosts, _format_jax, "error", cure)
    yield from judge_each("jax", hosts, lambda told: explain_old_jax(told["jax"]), "error")
    cure = "another version of jax may have them, or a newer mcjax-launch may not need them"
    yield from judge_each("jax", hosts, _format_missing_internals, "warning", cure)
    # Compare only hosts with equally many ranks: with more ranks a host may have more devices.
    with_devices = {name: told for name, told in hosts.items() if told["devices"]}
    for ranks in dict.fromkeys(told["ranks"] for told in with_devices.values()):
        alike = {name: told for name, told in with_devices.items() if told["ranks"] == ranks}
        yield from compare_hosts("devices", alike, _format_devices)
    yield from judge_each("devices", hosts, _format_unused_gpus, "warning")


def _format_jax(told: ProbeOutput) -> str:
    return f"{told['jax'] or 'none'}, jaxlib {told['jaxlib'] or 'is missing'}"


def _format_missing_internals(told: ProbeOutput) -> str:
    """Return text on JAX's internals that the hook uses and a host's jax lacks."""
    names = group_by_key((lost, name) for name, lost in told.get("missing", {}).items())
    return "; ".join(f"without {', '.join(some)}: {lost}" for lost, some in names.items())


def _format_devices(told: ProbeOutput) -> str:
    """Return device counts as text, like `2 cpu` or `8 NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter[str](told["devices"]).items())


def _format_unused_gpus(told: ProbeOutput) -> str:
    return f"JAX uses the CPU, although there are GPUs: {told['why']}" if told["why"] else ""


# --- the sum ---


def judge_sum(ranks: Sequence[ProbeOutput], why_not: str) -> Findings:
    """Judge how the ranks have joined, and the sum that they have computed over all devices.

    Args:
        ranks: what each rank's probe printed.
        why_not: how the job ended, unless it succeeded.

    """
    joined = [told for told in ranks if "coordinator" in told]
    if ranks and len(joined) == len(ranks):
        imported, took, found = (
            f"{max(told[name] for told in ranks):.1f} s"
            for name in ("import_s", "initialize_s", "devices_s")
        )
        value = f"{format_count(len(ranks), 'rank')} joined at {ranks[0]['coordinator']} in {took}"
        detail = f"`import jax` took {imported}, jax.devices() {found}"
        yield Judgement("coordinator", f"{value} ({detail})")
    summed = [told for told in ranks if told.get("values")]
    if summed:
        count = summed[0]["count"]
        expected, where = count * (count + 1) // 2, f"over {format_count(count, 'device')}"
        if wrong := sorted({value for told in summed for value in told["values"]} - {expected}):
            values = ", ".join(map(str, wrong))
            yield Judgement("sum", f"{values} {where}, not {expected}", verdict="error")
        else:
            slowest = max(told["sum_s"] for told in summed)
            yield Judgement("sum", f"{expected} {where}, in {slowest:.1f} s")
    if why_not or len(summed) < len(ranks) or not ranks:
        why_not = why_not or "not all ranks have reported their results"
        waits = joined and len(joined) == len(ranks) and not summed
        cure = "all ranks had joined: do firewalls pass all ports between the hosts?"
        yield Judgement("sum", why_not, verdict="error", cure=cure if waits else "")


# --- the same judgement of several hosts ---


def judge_each(
    topic: str, hosts: Hosts, value: Text, verdict: Verdict = "ok", cure: str = ""
) -> Findings:
    """Yield a finding for each host for which `value` returns text."""
    for name, told in hosts.items():
        if text := value(told):
            yield Judgement(topic, text, (name,), verdict, cure)


def compare_hosts(
    topic: str, hosts: Hosts, value: Text, verdict: Verdict = "warning", cure: str = ""
) -> Findings:
    """Yield a finding for each host: ok if its value is the most frequent, else `verdict`."""
    texts = {name: value(told) for name, told in hosts.items()}
    usual = Counter(texts.values()).most_common(1)[0][0] if texts else ""
    for name, text in texts.items():
        if text != usual:
            shown = f"{text or 'none'}; elsewhere {usual or 'none'}"
            yield Judgement(topic, shown, (name,), verdict, cure)
        elif usual:
            yield Judgement(topic, usual, (name,))

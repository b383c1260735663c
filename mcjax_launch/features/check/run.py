"""A check from its beginning to its end: a survey, then a job that adds numbers of all devices."""

import os
from collections.abc import Callable, Iterator, Sequence

from mcjax_launch import features
from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.root_cause import JobStopped
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.check import probe
from mcjax_launch.features.check.judgement import (
    Judgement,
    judge,
    judge_devices,
    judge_gpus,
    judge_mtls,
    merged,
    topics,
)
from mcjax_launch.features.check.survey import OWN_VARIABLES, HostSurvey
from mcjax_launch.features.check.told import DevicesCounted, Told, devices_of_ranks, told_by
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.launcher import restarts
from mcjax_launch.kernel.launcher.front import Front, of_own_process
from mcjax_launch.kernel.transport.client import Transport
from mcjax_launch.kernel.wire import exit_status
from mcjax_launch.kernel.wire.signals import ENDING
from mcjax_launch.ranks import counted, slices_text

# Limits where the user sets none: ranks that do not find one another would wait for five minutes.
_START_S, _WHOLE_S = 60.0, 120.0


def run(job: Job, hosts: Sequence[Host], say: Callable[[str], object]) -> list[Judgement]:
    """Find out all that can be found out.

    Args:
        job: what a plain run would start; its program does not matter.
        hosts: where.
        say: is called with what takes a while.

    Raises:
        LaunchError: the user has ended the check, or the client that leads to the hosts is not
            there.

    """
    transport = Transport(job, features.on_hosts(job_of_check(job)))
    transport.start_local(hosts)
    transport.allow_many_files()
    front = of_own_process()
    survey = HostSurvey(job, hosts, transport, front)
    say(f"asking {counted(len(hosts), 'host')} ...")
    try:
        found = survey.ask_hosts()
        wrong = topics(list(judge(found)), "error")
        if wrong:
            say("counting devices ...")
            devices = survey.count_devices()
            found = found.replaced(lost=survey.lost)
    finally:
        survey.end()
    total = [Judgement("sum", f"not run: see {', '.join(wrong)}", verdict="note")]
    if not wrong:
        say(f"adding up the devices of {counted(job.num_processes, 'rank')} ...")
        total, devices = add_up(job, hosts, transport, front)
    unknown = DevicesCounted((), "")
    there = [host.replaced(devices=devices.get(host.name, unknown)) for host in found.hosts]
    of_gpus = () if job.uses_cpu else judge_gpus(there)
    with_jax = [host for host in there if not host.python.error]
    of_tls = judge_mtls(job, with_jax, alone=len(hosts) == 1)
    return merged([*judge(found), *of_tls, *judge_devices(there), *of_gpus, *total])


# --- the job ---


def job_of_check(job: Job) -> Job:
    """A job with what a plain run would have, whose program is ours."""
    program = os.path.abspath(probe.__file__)
    return job.replaced(
        program=(os.path.basename(program),),
        chdir_given=False,
        env=(*OWN_VARIABLES, *job.env),
        sync=(program,),
        show=frozenset(),
        quiet=not job.verbose,
        log_dir=None,
        timeout=job.timeout or _WHOLE_S,
        start_timeout=(job.start_timeout or _START_S) if job.hook else None,
        record=True,  # which keeps what ranks print
    )


def add_up(
    job: Job, hosts: Sequence[Host], transport: Transport, front: Front
) -> tuple[list[Judgement], dict[str, DevicesCounted]]:
    """Run the job; what came of it, and the devices of each host, by its name.

    Args:
        job: what a plain run would start.
        front: of this process.

    Raises:
        LaunchError: the user has ended it.

    """
    attempts: list[Attempt] = []
    hosts = [host.replaced(chdir=None) for host in hosts]
    why_not = ""
    try:
        outcome = restarts.run(
            *(job_of_check(job), hosts, transport),
            ended=attempts.append,
            front=front,
        )
        why_not = outcome.message if outcome.status else ""
    except LaunchError as error:
        why_not = str(error)
    ending = attempts[-1].summary.ending if attempts else None
    if isinstance(ending, JobStopped) and ending.status in map(exit_status.of_signal, ENDING):
        raise LaunchError("the check was not finished", ending.status)
    ranks = [run for attempt in attempts for run in attempt.state.ranks.values()]
    told = [(run.host, told_by(run.stdout)) for run in ranks]
    total = [*judge_internals(told), *judge_sum([one for _, one in told], why_not)]
    return total, devices_of_ranks(told)


def judge_internals(ranks: Sequence[tuple[str, Told]]) -> Iterator[Judgement]:
    """Judge how many of JAX's internals the hook has found on each host; pure.

    Args:
        ranks: the host of each, and what it has told.

    """
    cure = "another jax may have them, or a newer mcjax-launch may do without"
    for host, told in dict(ranks).items():
        if found := told.get("internals"):
            count, missing = found["count"], found["missing"]
            text = f"{count - len(missing)} of {count} of JAX's internals are found"
            yield Judgement("hook", text, (host,), "warning" if missing else "ok")
            for lost in dict.fromkeys(missing.values()):
                names = ", ".join(name for name in missing if missing[name] == lost)
                yield Judgement("hook", f"without {names}: {lost}", (host,), "warning", cure)


def judge_sum(ranks: Sequence[Told], why_not: str) -> Iterator[Judgement]:
    """What came of the sum; pure.

    Args:
        ranks: what each has told.
        why_not: how the job ended, unless it ended well.

    """
    complete = bool(ranks) and all("sums" in told for told in ranks)
    if complete:
        yield from _results(ranks)
    if why_not or not complete:
        why_not = why_not or "not all ranks have told their results"
        yield Judgement("sum", why_not, verdict="error")


def _results(ranks: Sequence[Told]) -> Iterator[Judgement]:
    def slowest(name: str) -> str:
        return f"{max(told[name] for told in ranks):.1f} s"

    took = f"`import jax` took {slowest('import_s')}, jax.devices() {slowest('devices_s')}"
    where = f"joined at {ranks[0]['coordinator']} in {slowest('initialize_s')}"
    yield Judgement("initialize", f"{counted(len(ranks), 'rank')} {where} ({took})")
    slices = [told["slice"] for told in ranks]
    yield Judgement("slices", slices_text(slices))
    if len(set(slices)) > 1:
        yield Judgement("slices", "jax.make_mesh takes no more than one", verdict="note")
    first, little, much = ranks[0]["sums"]
    text = f"{first['values'][0]} over {counted(first['devices'], 'device')}"
    yield Judgement("sum", f"{text}, in {slowest('first_s')}")
    for one in [one for told in ranks for one in told["sums"]]:
        expected = one["devices"] * (one["devices"] + 1) // 2
        for value in set(one["values"]) - {expected}:
            text = f"{value} over {counted(one['devices'], 'device')}, not {expected}"
            yield Judgement("sum", f"{text}, of {one['size']} bytes each", verdict="error")
    if much["devices"] > 1:
        text = f"1 KB in {1e3 * little['seconds']:.2f} ms, {much['size'] >> 20} MB in "
        text += f"{1e3 * much['seconds']:.0f} ms ({much['size'] / much['seconds'] / 1e9:.2f} GB/s)"
        yield Judgement("speed", f"{text}, from each of {much['devices']} devices")

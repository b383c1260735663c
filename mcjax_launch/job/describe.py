"""--dry-run: a plan as shell commands; also the launcher's command line, made from options."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

from mcjax_launch.job import devices
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan, Rank, make_plan
from mcjax_launch.machine import gpus as wire_gpus
from mcjax_launch.machine import rank_environ
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.ranks import format_count, format_ranges
from mcjax_launch.wire.address import LOOPBACK, TPU_PORTS, join_address, split_address
from mcjax_launch.wire.messages import HostFacts, Tpu, VisibleGpus

# --- the command line that was given ---


def make_command_line(options: Options, given: Iterable[str]) -> list[str]:
    """Return all words after `mcjax-launch`: the options named in `given`, then PROGRAM's words."""
    words = [word for name in given for word in make_option_words(options, name)]
    return [*words, "--", *options.program]


def make_option_words(options: Options, name: str) -> tuple[str, ...]:
    """Return the words of an option and its value on a command line; none for a flag not set."""
    option, value = Options.declared[name], getattr(options, name)
    if isinstance(value, bool):
        return (option.long,) if value else ()
    if option.repeats:
        return tuple(word for item in value for word in (option.long, item))
    return option.long, _format_value(value)


def _format_value(value: Any) -> str:
    if value is None:  # a limit that is none
        return "0"
    if isinstance(value, frozenset):
        return format_ranges(value) or "none"
    if isinstance(value, tuple):
        return ",".join(value)
    # Never 1e+06, which is not a duration.
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


# --- a plan as a list; all but `format_dry_run_here` is pure ---

# Stand-ins for values that only a start would determine.
_JOB_ID = "00000000"
_PORT = "PORT"
_USUAL_TPU = "v5e"
_STAGE = "STAGE"


def format_dry_run_here(job: Job, hosts: Sequence[Host]) -> str:
    """Return the text of --dry-run, with this machine's variables and GPUs."""
    environ = rank_environ.without_outer_job(os.environ)
    found = wire_gpus.find_visible_gpus({**environ, **dict(job.env)})
    return format_dry_run(job, hosts, os.environ, found)


def format_dry_run(
    job: Job, hosts: Sequence[Host], environ: Mapping[str, str], found: VisibleGpus
) -> str:
    """Return the text of --dry-run: the plan of a job, as far as known without reaching a host.

    Args:
        job: the user's request.
        hosts: the hosts that would get ranks.
        environ: variables that ranks on this machine inherit.
        found: GPUs that ranks on this machine would see.

    """
    alone = len(hosts) == 1
    address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
    address = address or (LOOPBACK if alone else hosts[0].name)
    ranks, chips = job.processes_here, job.tpu_chips_per_process
    facts = {
        host: HostFacts(
            python=host.python or "",
            cwd=_choose_folder(job, host),
            gpus=_assume_gpus(job, host, found),
            platforms=environ.get("JAX_PLATFORMS", "") if host.is_local else "",
            tpu=Tpu(ranks * chips, _USUAL_TPU) if chips else None,
            tpu_ports=tuple(range(TPU_PORTS[0], TPU_PORTS[0] + ranks)) if chips else (),
        )
        for host in hosts
    }
    coordinator = join_address(address, port or _PORT)
    plan = make_plan(job, hosts, facts, job_id=_JOB_ID, coordinator=coordinator)
    return (
        "\n".join(describe(plan, environ, [*_describe_files(job), *_describe_gpus(job, plan)]))
        + "\n"
    )


def _describe_files(job: Job) -> Iterator[str]:
    if job.sync:
        yield f"{_STAGE} is the folder to which --sync copies {shlex.join(job.sync)}"
    yield from declared.collect("describe", job)


def _assume_gpus(job: Job, host: Host, found: VisibleGpus) -> VisibleGpus:
    """Return the GPUs to assume for a host: the requested number, else those found, if local."""
    if isinstance(job.gpus_per_process, int):
        return VisibleGpus(tuple(range(job.gpus_per_process * job.processes_here)))
    return found if host.is_local else VisibleGpus()


def _describe_gpus(job: Job, plan: Plan) -> Iterator[str]:
    yield from plan.notes
    if isinstance(job.gpus_per_process, int):
        return
    yield from devices.describe_gpus(plan.gpus)
    yield from (share.shared for share in plan.gpus.values() if share.words and share.shared)
    remote = any(not host.is_local for host in plan.hosts)
    if remote and _shares_equally(job) and len(plan.ranks) > len(plan.hosts):
        yield "GPUs: the ranks of a host share its own equally, by JAX_LOCAL_DEVICE_IDS"


def _shares_equally(job: Job) -> bool:
    return not job.uses_cpu and job.gpus_per_process is None


def _choose_folder(job: Job, host: Host) -> str:
    """Return the working directory of a host's ranks; below STAGE with --sync."""
    if not job.sync:
        return host.chdir or job.chdir
    chdir = host.chdir or (job.chdir if job.chdir_given else "")
    return os.path.join(_STAGE, chdir)


def describe(plan: Plan, environ: Mapping[str, str], notes: Iterable[str]) -> Iterator[str]:
    """Yield lines of a plan: the common folder and variables, then each rank's own and its command.

    Args:
        plan: the plan of the job.
        environ: variables that ranks on this machine inherit; other hosts' are unknown.
        notes: texts of comment lines at the top.

    """
    hosts, ranks = format_count(len(plan.hosts), "host"), format_count(len(plan.ranks), "rank")
    yield f"# job {plan.job_id}: {ranks} on {hosts}"
    yield from (f"# {note}" for note in notes)
    settings = [_compute_set_variables(rank, plan, environ) for rank in plan.ranks]
    shared = reduce(and_, (each.items() for each in settings))
    common = {name: value for name, value in shared if name != "JAX_PROCESS_ID"}
    folders = {rank.cwd for rank in plan.ranks}
    if len(folders) == 1:
        yield f"cd {shlex.quote(*folders)}"
    yield from (f"export {_format_assignment(*item)}" for item in sorted(common.items()))
    for rank, each in zip(plan.ranks, settings, strict=True):
        yield f"# rank {rank.process_id} on {rank.host.login}"
        own = [_format_assignment(*item) for item in sorted(each.items() - common.items())]
        enter = "" if len(folders) == 1 else f"cd {shlex.quote(rank.cwd)} && "
        yield enter + " ".join([*own, shlex.join(rank.argv)])


def _compute_set_variables(rank: Rank, plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the launcher sets in a rank, without those that it inherits."""
    inherited: dict[str, str] = {}
    if rank.host.is_local:
        inherited = rank_environ.select_inherited(environ, plan.env, rank.env, hook=plan.hook)
    return rank_environ.compute_changes(
        inherited,
        common=plan.env
        if plan.hook
        else rank_environ.leave_coordinator_to_scheduler(plan.env, inherited),
        defaults=plan.defaults,
        own=rank.env,
        coordinator_host=rank.values["coordinator_host"],
    )


def _format_assignment(name: str, value: str) -> str:
    return f"{name}={shlex.quote(value)}"

"""A plan as text, for --dry-run; pure."""

import shlex
from collections.abc import Mapping, Sequence

from mcjax_launch.job.facts import Facts
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan, Rank, make_plan
from mcjax_launch.protocol import rank_environ
from mcjax_launch.protocol.address import LOOPBACK, join_address, split_address
from mcjax_launch.ranks import counted

# What only a start would settle.
_JOB_ID = "00000000"
_PORT = "PORT"
_ENOUGH_GPUS = 1 << 16


def dry_run(job: Job, hosts: Sequence[Host], environ: Mapping[str, str]) -> str:
    """What would run, as far as it is known before any host has been reached.

    Args:
        job: what the user asked for.
        hosts: those that would get ranks.
        environ: what ranks on this machine inherit.

    """
    address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
    address = address or (LOOPBACK if len(hosts) == 1 else hosts[0].name)
    facts = {
        host: Facts(gpus=_ENOUGH_GPUS, python=host.python or "", cwd=host.chdir or "")
        for host in hosts
    }
    coordinator = join_address(address, port or _PORT)
    return describe(make_plan(job, hosts, facts, job_id=_JOB_ID, coordinator=coordinator), environ)


def describe(plan: Plan, environ: Mapping[str, str]) -> str:
    """Each rank's host, and its folder, variables and command as a line of shell.

    Args:
        plan: whose ranks are shown.
        environ: what ranks on this machine inherit; what others inherit is not known here.

    """
    hosts, ranks = counted(len(plan.hosts), "host"), counted(len(plan.ranks), "rank")
    lines = [f"# job {plan.job_id}: {ranks} on {hosts}"]
    for rank in plan.ranks:
        lines += [f"# rank {rank.process_id} on {rank.host.login}", _as_shell(rank, plan, environ)]
    return "\n".join(lines) + "\n"


def _as_shell(rank: Rank, plan: Plan, environ: Mapping[str, str]) -> str:
    inherited = environ if rank.host.is_local else {}
    misleading = rank_environ.misleading(inherited) if plan.hook else []
    settings = rank_environ.changes(
        {name: value for name, value in inherited.items() if name not in misleading},
        common=plan.env,
        defaults=plan.defaults,
        own=rank.env,
        coordinator_host=rank.values["coordinator_host"],
    )
    words = ["env", *(word for name in misleading for word in ("-u", name))]
    words += [f"{name}={shlex.quote(value)}" for name, value in sorted(settings.items())]
    return f"cd {shlex.quote(rank.cwd)} && {' '.join(words)} {shlex.join(rank.argv)}"

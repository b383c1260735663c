"""What will run where: plain values, and how they follow from one another; pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcjax_launch import environment, placeholders
from mcjax_launch.errors import LaunchError

#: The grace between asking the ranks to end and killing them, by what ends the job. Seconds.
GRACE_S = {"failure": 2.0, "INT": 5.0, "TERM": 30.0, "HUP": 30.0}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the user asked for. Durations are in seconds; None where there is no limit."""

    program: tuple[str, ...]
    num_processes: int = 1
    module: bool = False
    python: str
    chdir: str
    env: tuple[tuple[str, str], ...] = ()
    cpu_devices: int | None = None
    gpus_per_process: int | None = None
    cpu_transfers: bool = False
    bind_cores: bool = False
    coordinator: str | None = None  # host or host:port
    hook: bool = True
    timeout: float | None = None
    start_timeout: float | None = None
    grace: float | None = None

    def grace_s(self, reason: str) -> float:
        """The grace after `reason`, a key of GRACE_S."""
        return GRACE_S[reason] if self.grace is None else self.grace


@dataclass(frozen=True)
class Host:
    """A machine that runs ranks. `name` is "localhost" for the launcher's own."""

    name: str
    slots: int


@dataclass(frozen=True)
class Facts:
    """What a host's agent found out and reserved before anything was started."""

    gpus: int = 0
    cores: tuple[tuple[int, ...], ...] = ()
    transfer_ports: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rank:
    """One process of the job."""

    process_id: int
    local_process_id: int
    host: Host
    argv: tuple[str, ...]
    env: Mapping[str, str]  # its own, beside the common ones
    cwd: str
    values: Mapping[str, str]  # of the placeholders
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything resolved: each rank's command and variables."""

    job_id: str
    coordinator: str
    ranks: tuple[Rank, ...]
    env: Mapping[str, str]  # set in every rank
    unset: tuple[str, ...]  # taken out of what the ranks inherit
    hook: bool
    num_processes: int
    hosts: tuple[Host, ...] = field(default=())


def place(job: Job, hosts: Sequence[Host]) -> list[tuple[Host, int]]:
    """Each rank's host and its number on it, in order of rank: slots are filled in order."""
    slots = [(host, local) for host in hosts for local in range(host.slots)]
    return slots[: job.num_processes]


def make_plan(
    job: Job,
    hosts: Sequence[Host],
    facts: Mapping[Host, Facts],
    *,
    job_id: str,
    coordinator: str,
    environ: Mapping[str, str],
    restart: int = 0,
) -> Plan:
    """Resolve a job.

    Args:
        job: what the user asked for.
        hosts: where it may run; there are slots enough.
        facts: what each host's agent found.
        job_id: the job's name for itself.
        coordinator: numeric host:port, reserved.
        environ: what the ranks inherit.
        restart: how many times the job has been started before.

    Raises:
        LaunchError: a host has too few GPUs.

    """
    placed = place(job, hosts)
    on_host = {host: sum(other is host for other, _ in placed) for host in hosts}
    coordinator_host, _, coordinator_port = coordinator.rpartition(":")
    shared = {
        "num_processes": str(job.num_processes),
        "coordinator": coordinator,
        "coordinator_host": coordinator_host.strip("[]"),
        "coordinator_port": coordinator_port,
        "job_id": job_id,
    }
    proxies = environment.no_proxy({**environ, **dict(job.env)}, shared["coordinator_host"])
    ranks = []
    for process_id, (host, local) in enumerate(placed):
        values = {
            **shared,
            "process_id": str(process_id),
            "local_process_id": str(local),
            "host": host.name,
        }
        own = {
            "JAX_PROCESS_ID": str(process_id),
            "MCJAX_LOCAL_PROCESS_ID": str(local),
            "MCJAX_LOCAL_NUM_PROCESSES": str(on_host[host]),
        }
        known = facts.get(host, Facts())
        if job.gpus_per_process is not None:
            own["JAX_LOCAL_DEVICE_IDS"] = _gpus(job.gpus_per_process, host, local, on_host, known)
        if known.transfer_ports:
            address = f"{shared['coordinator_host']}:{known.transfer_ports[local]}"
            own["MCJAX_HOOK_TRANSFER"] = address
        own |= {name: placeholders.fill(value, values) for name, value in job.env} | proxies
        argv = tuple(placeholders.fill(word, values) for word in command(job))
        cores = known.cores[local] if known.cores else ()
        ranks.append(Rank(process_id, local, host, argv, own, job.chdir, values, cores))
    env = {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": str(job.num_processes),
        "MCJAX_JOB_ID": job_id,
        "MCJAX_RESTART": str(restart),
        **environment.common(
            environ,
            dict(job.env),
            cpu_devices=job.cpu_devices,
            hash_seed=int(job_id, 16) % 2**32,
        ),
    }
    if job.hook:
        env |= _hook_settings(job, coordinator, hosts)
    return Plan(
        job_id=job_id,
        coordinator=coordinator,
        ranks=tuple(ranks),
        env=env,
        unset=tuple(environment.misleading(environ)) if job.hook else (),
        hook=job.hook,
        num_processes=job.num_processes,
        hosts=tuple(hosts),
    )


def command(job: Job) -> list[str]:
    """The command of every rank, placeholders still in it."""
    if job.module:
        return [job.python, "-m", *job.program]
    if job.program[0].endswith(".py"):
        return [job.python, *job.program]
    return list(job.program)


def _gpus(each: int, host: Host, local: int, on_host: Mapping[Host, int], facts: Facts) -> str:
    needed = each * on_host[host]
    if needed > facts.gpus:
        raise LaunchError(
            f"host {host.name}: {on_host[host]} ranks x {each} GPUs each need {needed}, it shows "
            f"{facts.gpus} (CUDA_VISIBLE_DEVICES, nvidia-smi -L); lower -n or --gpus-per-process"
        )
    return ",".join(str(gpu) for gpu in range(local * each, (local + 1) * each))


def split_address(address: str) -> tuple[str, int]:
    """`host`, `host:port` or `[v6]:port` as host and port; 0 where there is no port.

    Raises:
        ValueError: the port is no number.

    """
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, int(rest[1:] or 0)
    if address.count(":") > 1:
        return address, 0
    host, _, port = address.partition(":")
    return host, int(port or 0)


def _hook_settings(job: Job, coordinator: str, hosts: Sequence[Host]) -> dict[str, str]:
    settings = {}
    if len(hosts) == 1:
        # JAX's coordination service has no authentication and would listen everywhere.
        settings["MCJAX_HOOK_BIND"] = coordinator
    if job.start_timeout is not None:
        settings["MCJAX_HOOK_JOIN_TIMEOUT"] = str(job.start_timeout)
    return settings


def orders(plan: Plan, host: Host, grace_s: float) -> dict[str, object]:
    """What the agent of `host` needs to start its ranks."""
    ranks = [
        {
            "process_id": rank.process_id,
            "argv": rank.argv,
            "env": dict(rank.env),
            "cwd": rank.cwd,
            "cores": rank.cores,
        }
        for rank in plan.ranks
        if rank.host is host
    ]
    return {
        "ranks": ranks,
        "env": dict(plan.env),
        "unset": plan.unset,
        "hook": plan.hook,
        "grace": grace_s,
    }


def describe(plan: Plan) -> str:
    """The plan for a person: each rank's host, command and variables, in a shell's words."""
    lines = [f"# job {plan.job_id}: {len(plan.ranks)} ranks on {len(plan.hosts)} host(s)"]
    for rank in plan.ranks:
        lines.append(f"# rank {rank.process_id} on {rank.host.name}")
        variables = {**plan.env, **rank.env}
        words = [f"{name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
        removed = [word for name in plan.unset for word in ("-u", name)]
        prefix = ["env", *removed, *words]
        lines.append(f"cd {shlex.quote(rank.cwd)} && {' '.join(prefix)} {shlex.join(rank.argv)}")
    return "\n".join(lines) + "\n"

"""What will run where: plain values, and how they follow from one another; pure."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcjax_launch import placeholders
from mcjax_launch.agent import environ as variables
from mcjax_launch.errors import LaunchError
from mcjax_launch.hosts import Host

#: The grace between asking the ranks to end and killing them, by what ends the job. Seconds.
GRACE_S = {"failure": 2.0, "INT": 5.0, "TERM": 30.0, "HUP": 30.0}
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the user asked for. Durations are in seconds; None where there is no limit."""

    program: tuple[str, ...]
    num_processes: int = 1  # of the whole job
    num_hosts: int = 1  # each with a launcher of its own, started by another engine
    host_rank: int = 0  # which of them this is
    module: bool = False
    python: str
    python_given: bool = False
    chdir: str
    chdir_given: bool = False
    env: tuple[tuple[str, str], ...] = ()
    cpu_devices: int | None = None
    gpus_per_process: int | None = None
    cpu_transfers: bool = False
    bind_cores: bool = False
    coordinator: str | None = None  # numeric host, or host:port
    hook: bool = True
    sync: tuple[str, ...] = ()
    timeout: float | None = None
    start_timeout: float | None = None
    stall_timeout: float | None = None
    verify_spmd: bool = False
    record: bool = False  # keep what the ranks use over time
    grace: float | None = None

    def grace_s(self, reason: str) -> float:
        """The grace after `reason`, a key of GRACE_S."""
        return GRACE_S[reason] if self.grace is None else self.grace

    @property
    def processes_here(self) -> int:
        """How many of the ranks this launcher starts."""
        return self.num_processes // self.num_hosts

    @property
    def uses_cpu(self) -> bool:
        """Whether the ranks are known to use JAX's CPU devices."""
        return self.cpu_devices is not None or dict(self.env).get("JAX_PLATFORMS") == "cpu"

    @property
    def is_python(self) -> bool:
        """Whether we start the program with the ranks' Python ourselves."""
        return self.module or self.program[0].endswith(".py")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a host's agent found out and reserved before anything was started.

    Args:
        python: of its ranks, if they need one.
        cwd: of its ranks.
        gpus: how many it shows.
        cores: each rank's share.
        transfer_ports: each rank's, for transfers between CPU processes.
        address: its own, by which other hosts reach it; empty if nobody needs to.
        good_name: its own name leads to such an address.

    """

    python: str = ""
    cwd: str = ""
    gpus: int = 0
    cores: tuple[tuple[int, ...], ...] = ()
    transfer_ports: tuple[int, ...] = ()
    address: str = ""
    good_name: bool = True


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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything resolved: each rank's command and variables.

    Args:
        env: set in every rank.
        defaults: set in every rank whose host does not set them itself.

    """

    job_id: str
    coordinator: str
    ranks: tuple[Rank, ...]
    hosts: tuple[Host, ...]
    env: Mapping[str, str]
    defaults: Mapping[str, str]
    hook: bool


def place(num_processes: int, hosts: Sequence[Host]) -> list[tuple[Host, int]]:
    """Each rank's host and its number on it, in order of rank: slots are filled in order.

    Raises:
        LaunchError: there are fewer slots than ranks.

    """
    slots = [(host, local) for host in hosts for local in range(host.slots)]
    if len(slots) < num_processes:
        raise LaunchError(
            f"-n {num_processes}: the hosts have {len(slots)} slots; add hosts, or slots "
            "(slots=K in the hosts file, --procs-per-host K)"
        )
    return slots[:num_processes]


def used_hosts(num_processes: int, hosts: Sequence[Host]) -> dict[Host, int]:
    """The hosts that get ranks, in order, and how many each.

    Raises:
        LaunchError: see `place`.

    """
    return dict(Counter(host for host, _ in place(num_processes, hosts)))


def questions(job: Job, host: Host, ranks: int, *, first: bool, several: bool) -> dict[str, object]:
    """What an agent is to find out and to hold before anything is started.

    Args:
        ranks: how many will run there.
        first: it is the coordinator's host.
        several: there are other hosts.

    """
    pythons = []
    if job.is_python:
        given = host.python or (job.python if job.python_given else None)
        pythons = [given] if given else [job.python, "python3"]
    coordinator: tuple[str, int] | None = None
    if first:
        address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
        # Another host's way to this one may lead through an address that is not its own.
        elsewhere = several or job.num_hosts > 1
        coordinator = ("" if elsewhere else address, port)
    if job.host_rank:
        coordinator = None
    return {
        "from_afar": not host.is_local,
        "command": None if job.is_python else job.program[0],
        "pythons": pythons,
        "program": job.program[0] if job.is_python and not job.module else None,
        "needs_jax": bool(host.python) or job.python_given or not host.is_local,
        "env": dict(job.env),
        "chdir": host.chdir or job.chdir,
        "chdir_given": bool(host.chdir) or job.chdir_given,
        "coordinator": coordinator,
        "listen": first if several else None,
        "towards": split_address(job.coordinator)[0]
        if job.coordinator and job.num_hosts > 1
        else None,
        "transfers": ranks if job.cpu_transfers else 0,
        "gpus": job.gpus_per_process is not None,
        "cores": ranks if job.bind_cores else 0,
    }


def make_plan(
    job: Job,
    hosts: Sequence[Host],
    facts: Mapping[Host, Facts],
    *,
    job_id: str,
    coordinator: str,
    bind: bool = True,
    restart: int = 0,
) -> Plan:
    """Resolve a job.

    Args:
        job: what the user asked for.
        hosts: where it may run.
        facts: what each host's agent found.
        job_id: the job's name for itself.
        coordinator: numeric host:port, reserved.
        bind: it is an address of rank 0's own host.
        restart: how many times the job has been started before.

    Raises:
        LaunchError: there are too few slots, or a host has too few GPUs.

    """
    placed = place(job.processes_here, hosts)
    on_host = used_hosts(job.processes_here, hosts)
    coordinator_host, _, coordinator_port = coordinator.rpartition(":")
    shared = {
        "num_processes": str(job.num_processes),
        "coordinator": coordinator,
        "coordinator_host": coordinator_host.strip("[]"),
        "coordinator_port": coordinator_port,
        "job_id": job_id,
    }
    ranks = []
    first_here = job.host_rank * job.processes_here
    for process_id, (host, local) in enumerate(placed, first_here):
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
            **_own_settings(job, host, local, on_host[host], facts[host]),
        }
        own |= {name: placeholders.fill(value, values) for name, value in job.env}
        words = command(job, facts[host].python or job.python)
        argv = tuple(placeholders.fill(word, values) for word in words)
        cores = facts[host].cores[local] if facts[host].cores else ()
        cwd = facts[host].cwd or job.chdir
        ranks.append(Rank(process_id, local, host, argv, own, cwd, values, cores))
    env = {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": str(job.num_processes),
        "MCJAX_JOB_ID": job_id,
        "MCJAX_RESTART": str(restart),
        "PYTHONUNBUFFERED": "1",
    }
    defaults = {"PYTHONHASHSEED": str(int(job_id, 16) % 2**32)}
    if job.cpu_devices is not None:
        env["JAX_NUM_CPU_DEVICES"] = str(job.cpu_devices)
        defaults["JAX_PLATFORMS"] = "cpu"
    if job.hook and bind:
        # JAX's coordination service has no authentication and would listen everywhere.
        env["MCJAX_HOOK_BIND"] = coordinator
    if job.hook and job.start_timeout is not None:
        env["MCJAX_HOOK_JOIN_TIMEOUT"] = str(job.start_timeout)
    if job.hook and job.verify_spmd:
        env["MCJAX_HOOK_LOOK"] = "1"
    return Plan(
        job_id=job_id,
        coordinator=coordinator,
        ranks=tuple(ranks),
        hosts=tuple(on_host),
        env=env,
        defaults=defaults,
        hook=job.hook,
    )


def command(job: Job, python: str) -> list[str]:
    """The command of every rank, placeholders still in it."""
    if job.module:
        return [python, "-m", *job.program]
    return [python, *job.program] if job.is_python else list(job.program)


def _own_settings(job: Job, host: Host, local: int, ranks: int, facts: Facts) -> dict[str, str]:
    """A rank's own devices and addresses."""
    settings = {}
    if job.gpus_per_process is not None:
        each, needed = job.gpus_per_process, job.gpus_per_process * ranks
        if needed > facts.gpus:
            raise LaunchError(
                f"host {host.name}: {ranks} ranks x {each} GPUs each need {needed}, it shows "
                f"{facts.gpus} (CUDA_VISIBLE_DEVICES, nvidia-smi -L); lower -n or the GPUs of each"
            )
        mine = range(local * each, (local + 1) * each)
        settings["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, mine))
    if facts.transfer_ports:
        address = join_address(facts.address or LOOPBACK, facts.transfer_ports[local])
        settings["MCJAX_HOOK_TRANSFER"] = address
    if facts.address and not facts.good_name:
        settings["MCJAX_HOOK_ADDRESS"] = facts.address
    return settings


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


def join_address(host: str, port: object) -> str:
    """`host:port`, with brackets where the host has colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def orders(plan: Plan, host: Host, job: Job, look_s: float) -> dict[str, object]:
    """What the agent of `host` needs to start its ranks.

    Args:
        look_s: how often it looks at what they use; 0: never.

    """
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
        "defaults": dict(plan.defaults),
        "scrub": plan.hook,
        "hook": plan.hook,
        "coordinator_host": split_address(plan.coordinator)[0],
        "look_s": look_s,
        "grace": job.grace_s("failure"),
        "term_grace": job.grace_s("TERM"),
    }


def describe(plan: Plan, environ: Mapping[str, str]) -> str:
    """The plan for a person: each rank's host, command and variables, in a shell's words.

    Args:
        environ: what ranks on this machine inherit; what others inherit is not known here.

    """
    noun = "host" if len(plan.hosts) == 1 else "hosts"
    lines = [f"# job {plan.job_id}: {len(plan.ranks)} ranks on {len(plan.hosts)} {noun}"]
    scrubbed = variables.misleading(environ) if plan.hook else []
    for rank in plan.ranks:
        inherited = (
            {n: v for n, v in environ.items() if n not in scrubbed} if rank.host.is_local else {}
        )
        found = variables.changes(
            inherited,
            common=plan.env,
            defaults=plan.defaults,
            own=rank.env,
            coordinator_host=rank.values["coordinator_host"],
        )
        removed = [word for name in scrubbed if rank.host.is_local for word in ("-u", name)]
        words = [f"{name}={shlex.quote(value)}" for name, value in sorted(found.items())]
        lines.append(f"# rank {rank.process_id} on {rank.host.login}")
        prefix = " ".join(["env", *removed, *words])
        lines.append(f"cd {shlex.quote(rank.cwd)} && {prefix} {shlex.join(rank.argv)}")
    return "\n".join(lines) + "\n"

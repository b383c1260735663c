"""What will run where: plain values, and how they follow from one another; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.protocol import hook_environ
from mcjax_launch.protocol.address import LOOPBACK, join_address


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
        env[hook_environ.BIND] = coordinator
    if job.hook and job.start_timeout is not None:
        env[hook_environ.JOIN_TIMEOUT] = str(job.start_timeout)
    if job.hook and job.verify_spmd:
        env[hook_environ.LOOK] = "1"
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
        settings[hook_environ.TRANSFER] = address
    if facts.address and not facts.good_name:
        settings[hook_environ.ADDRESS] = facts.address
    return settings

"""The plan of a job: each rank's host, command and variables; pure."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, islice

from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.devices import GpuShares, choose_cores, make_tpu_settings, share_out
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.options import wrappers
from mcjax_launch.ranks import format_count, format_ranges
from mcjax_launch.wire import hook_environ
from mcjax_launch.wire.address import LOOPBACK, join_address, split_text
from mcjax_launch.wire.exit_status import HOST_LOST
from mcjax_launch.wire.messages import HostFacts
from mcjax_launch.wire.rank_process import RankSettings
from mcjax_launch.wire.value import Value


class Rank(Value):
    """The plan of one rank.

    Args:
        process_id: number of the rank in the whole job.
        host: host of the rank.
        argv: command of the rank, with placeholders filled in.
        wrapper_words: number of words at the beginning of `argv` that belong to --wrap.
        env: the rank's own variables, besides the plan's common variables.
        cwd: working directory.
        values: values of the placeholders.
        settings: settings of the process: its cores.

    """

    process_id: int
    host: Host
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    values: Mapping[str, str]
    settings: RankSettings = RankSettings()
    wrapper_words: int = 0

    @property
    def bound_to(self) -> str:
        """The rank's cores, as `0-15,128-143`; "" if it may use all."""
        return format_ranges(self.settings.cores)

    @property
    def gpus(self) -> str:
        """The rank's GPU ids, as in JAX_LOCAL_DEVICE_IDS, or its MIG device; "" if unknown."""
        mine = self.env.get("CUDA_VISIBLE_DEVICES", "")
        return mine if mine.startswith("MIG-") else self.env.get("JAX_LOCAL_DEVICE_IDS", "")


class Plan(Value):
    """A fully resolved job: each rank's command and variables.

    Args:
        job_id: eight hexadecimal digits.
        coordinator: address of JAX's coordinator, as `host:port`.
        ranks: plans of the ranks, in order.
        hosts: hosts that get ranks, in order.
        env: variables set in every rank.
        defaults: variables set in every rank whose host does not set them.
        hook: True if the hook is loaded into the ranks' Python.
        gpus: shares of GPUs on each host.
        jax: version of jax on each host, by the host's name; "" if unknown.
        notes: lines for the user.

    """

    job_id: str
    coordinator: str
    ranks: tuple[Rank, ...]
    hosts: tuple[Host, ...]
    env: Mapping[str, str]
    defaults: Mapping[str, str]
    hook: bool
    gpus: Mapping[Host, GpuShares]
    jax: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def group_by_host(self) -> dict[Host, list[Rank]]:
        """Return the ranks of each host."""
        found: dict[Host, list[Rank]] = {host: [] for host in self.hosts}
        for rank in self.ranks:
            found[rank.host].append(rank)
        return found


def describe_cores(ranks: Iterable[Rank], how: str) -> str:
    """Describe the binding of ranks to cores; "" if no rank is bound.

    Args:
        ranks: plans of the job's ranks.
        how: value of --bind-cores.

    """
    bound = next((rank for rank in ranks if rank.settings.cores), None)
    if bound is None:
        return ""
    whose = "a share of its own" if how == "on" else "those next to its GPUs"
    return f"cores: each rank has {whose} (rank {bound.process_id}: {bound.bound_to})"


def place_ranks(num_processes: int, hosts: Sequence[Host]) -> list[tuple[Host, int]]:
    """Return each rank's (host, number on the host), in rank order; hosts are filled in order.

    Raises:
        LaunchError: there are fewer slots than ranks.

    """
    there_are = sum(host.slots for host in hosts)
    if there_are < num_processes:
        raise LaunchError(
            f"-n {num_processes}: the hosts have {format_count(there_are, 'slot')}; "
            "add hosts or slots (slots=K in the hosts file, --procs-per-host K)"
        )
    slots = ((host, local) for host in hosts for local in range(host.slots))
    return list(islice(slots, num_processes))


def count_ranks_by_host(num_processes: int, hosts: Sequence[Host]) -> dict[Host, int]:
    """Return the number of ranks on each host that gets ranks, in order.

    Raises:
        LaunchError: see `place_ranks`.

    """
    return dict(Counter(host for host, _ in place_ranks(num_processes, hosts)))


def group_ranks_by_host(job: Job, hosts: Sequence[Host]) -> dict[Host, list[int]]:
    """Return the numbers of the ranks on each host that gets ranks, in order.

    Raises:
        LaunchError: see `place_ranks`.

    """
    ranks: dict[Host, list[int]] = {}
    places = place_ranks(job.processes_here, hosts)
    for process_id, (host, _) in zip(job.ranks_here, places, strict=True):
        ranks.setdefault(host, []).append(process_id)
    return ranks


def make_plan(
    job: Job,
    hosts: Sequence[Host],
    facts: Mapping[Host, HostFacts],
    *,
    job_id: str,
    coordinator: str,
    bind: bool = True,
    restart: int = 0,
    own_name: str = "",
) -> Plan:
    """Resolve a job into a plan.

    Args:
        job: the user's request.
        hosts: the hosts with slots, in order.
        facts: facts about each host, as reported by its agent.
        job_id: eight hexadecimal digits.
        coordinator: reserved address, as `host:port`; numeric unless the user has given a name.
        bind: True if the coordinator's address is one of rank 0's own host.
        restart: number of earlier attempts.
        own_name: value of `{host}` for all ranks, if each host has its own launcher; else "".

    Raises:
        LaunchError: there are too few slots, or a host cannot run its ranks.

    """
    on_host = count_ranks_by_host(job.processes_here, hosts)
    if job.tpu_chips_per_process is not None and (len(on_host) > 1 or job.num_hosts > 1):
        raise LaunchError(
            "--tpu-chips-per-process is for one host: on several, run one rank on each TPU worker"
        )
    numbered = {host: (number, count) for number, (host, count) in enumerate(on_host.items())}
    shared = make_shared_values(job, job_id, coordinator, own_name)
    placed = zip(job.ranks_here, place_ranks(job.processes_here, hosts), strict=True)
    gpus = {host: _share_gpus(job, host, on_host[host], facts[host]) for host in on_host}
    bound = {
        host: choose_cores(job.bind_cores, on_host[host], facts[host], gpus[host])
        for host in on_host
    }
    return Plan(
        job_id=job_id,
        coordinator=coordinator,
        ranks=tuple(
            _make_rank(
                process_id, local, numbered[host], host, job, facts[host], gpus[host], shared
            ).copy_with(settings=RankSettings(bound[host][local]))
            for process_id, (host, local) in placed
        ),
        hosts=tuple(on_host),
        env=make_common_settings(job, job_id, coordinator, bind, restart)
        | make_slices_setting(job, job.host_sizes or on_host.values()),
        defaults=make_defaults(job_id),
        hook=job.hook,
        gpus=gpus,
        jax={host.name: facts[host].jax for host in on_host},
        notes=_format_notes(job, {host: facts[host] for host in on_host}),
    )


def _find_place(job: Job, process_id: int) -> tuple[int, tuple[int, int]] | None:
    """Return the number of a rank on its host, the host's number, and the number of ranks there.

    None if the ranks run where the plan has placed them; those of --preview do not.
    """
    first = 0
    for number, size in enumerate(job.host_sizes):
        if process_id < first + size:
            return process_id - first, (number, size)
        first += size
    return None


def _share_gpus(job: Job, host: Host, ranks: int, facts: HostFacts) -> GpuShares:
    try:
        return share_out(job, ranks, facts.gpus)
    except LaunchError as error:
        raise LaunchError(f"host {host.name}: {error}") from None


def _format_notes(job: Job, facts: Mapping[Host, HostFacts]) -> tuple[str, ...]:
    """Return a note for the user if -d overrides JAX_PLATFORMS on a host; else ()."""
    if job.cpu_devices is None or "JAX_PLATFORMS" in dict(job.env):
        return ()
    others = {host.name: found.platforms for host, found in facts.items()}
    others = {name: value for name, value in others.items() if value not in ("", "cpu")}
    if not others:
        return ()
    value = next(iter(others.values()))
    where = "" if len(facts) == 1 else f" on {', '.join(others)}"
    return (f"-d {job.cpu_devices}: the ranks use the CPU, not JAX_PLATFORMS={value}{where}",)


def make_shared_values(job: Job, job_id: str, coordinator: str, own_name: str) -> dict[str, str]:
    """Return the values of the placeholders that are the same for all ranks."""
    host, port = split_text(coordinator)
    return {
        "num_processes": str(job.num_processes),
        "coordinator": coordinator,
        "coordinator_host": host,
        "coordinator_port": port,
        "job_id": job_id,
        **({"host": own_name} if own_name else {}),
    }


def make_values(
    shared: Mapping[str, str], host: Host, process_id: int, local: int
) -> dict[str, str]:
    """Return the values of a rank's placeholders; `local` is its number on its host."""
    own = {"process_id": str(process_id), "local_process_id": str(local)}
    return {"host": host.name, **shared, **own}


def _make_rank(
    process_id: int,
    local: int,
    numbers: tuple[int, int],
    host: Host,
    job: Job,
    facts: HostFacts,
    gpus: GpuShares,
    shared: Mapping[str, str],
) -> Rank:
    """Return the plan of a rank; `local` is its number on its host.

    `numbers` are the host's number in the job, and the number of ranks on it.
    """
    local, (host_number, ranks_here) = _find_place(job, process_id) or (local, numbers)
    values = make_values(shared, host, process_id, local)
    env = {
        **make_number_settings(process_id, local, ranks_here),
        **gpus.make_settings(local, hook=job.hook),
        **make_own_settings(job, host, local, ranks_here, facts),
    }
    if job.env_style == "torch":
        env |= make_torch_settings(values, ranks_here, job.host_rank + host_number)
    env |= {name: placeholders.fill(value, values) for name, value in job.env}
    wrapper = wrappers.get_wrapper_words(job.wrappers, process_id)
    words = [*wrapper, *make_command(job, facts.python or job.python)]
    return Rank(
        process_id=process_id,
        host=host,
        argv=tuple(placeholders.fill(word, values) for word in words),
        env=env,
        cwd=facts.cwd or job.chdir,
        values=values,
        wrapper_words=len(wrapper),
    )


def make_command(job: Job, python: str) -> list[str]:
    """Return the command of a rank without --wrap, with placeholders not filled in."""
    if not job.is_python:
        return list(job.program)
    words = ["-m", *job.program] if job.module else list(job.program)
    return [python, *words]


# --- environment variables of ranks ---


def make_common_settings(
    job: Job, job_id: str, coordinator: str, bind: bool, restart: int
) -> dict[str, str]:
    """Return the variables set in every rank, in place of any value from its host.

    `bind`: the coordinator listens at its own address only; `restart`: number of earlier attempts.
    """
    settings = {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": str(job.num_processes),
        "MCJAX_JOB_ID": job_id,
        "MCJAX_RESTART": str(restart),
        "PYTHONUNBUFFERED": "1",
    }
    if job.cpu_devices is not None:
        settings["JAX_NUM_CPU_DEVICES"] = str(job.cpu_devices)
        settings["JAX_PLATFORMS"] = "cpu"
    if job.hook and job.has_calls:
        settings[hook_environ.SAFE_PATH] = hook_environ.OUR_SAFE_PATH
    if job.hook and bind:
        # Without it, JAX's coordination service would listen on every interface.
        settings[hook_environ.BIND] = coordinator
    if job.hook and job.start_timeout is not None:
        settings[hook_environ.JOIN_TIMEOUT] = str(job.start_timeout)
    if job.hook and job.survives:
        settings[hook_environ.SURVIVES] = "1"
    if job.hook and (switch := os.environ.get(hook_environ.SWITCH)):
        settings[hook_environ.RECORD] = switch
    return settings


def make_slices_setting(job: Job, ranks_of_hosts: Iterable[int]) -> dict[str, str]:
    """Return the variable with the first rank of each slice; {} with --slices auto.

    Args:
        job: the user's request.
        ranks_of_hosts: number of ranks on each host of this launcher.

    """
    if job.slices == "auto":
        return {}
    if job.slices == "host":
        sizes = list(ranks_of_hosts) * job.num_hosts  # of other launchers: as many as here
    else:
        count = 1 if job.slices == "one" else job.slices
        sizes = [job.num_processes // count] * count
    starts = accumulate(sizes[:-1], initial=0)
    return {hook_environ.SLICES: ",".join(map(str, starts))}


def make_defaults(job_id: str) -> dict[str, str]:
    """Return the variables set in every rank whose host does not set them: the hash seed."""
    # The same in all ranks: sets of strings must be traced in one order.
    seed = int(job_id, 16)
    return {"PYTHONHASHSEED": str(seed % 2**32)}


def make_torch_settings(
    values: Mapping[str, str], ranks_here: int, host_number: int
) -> dict[str, str]:
    """Return the variables by which torchrun gives a rank its coordinates.

    Args:
        values: values of the rank's placeholders.
        ranks_here: number of ranks on the rank's host.
        host_number: number of the rank's host in the job, from 0.

    """
    return {
        "RANK": values["process_id"],
        "WORLD_SIZE": values["num_processes"],
        "LOCAL_RANK": values["local_process_id"],
        "LOCAL_WORLD_SIZE": str(ranks_here),
        "GROUP_RANK": str(host_number),
        "MASTER_ADDR": values["coordinator_host"],
        "MASTER_PORT": values["coordinator_port"],
    }


def make_number_settings(process_id: int, local: int, ranks: int) -> dict[str, str]:
    """Return the variables with a rank's numbers: in the job, on its host, and its host's ranks."""
    return {
        "JAX_PROCESS_ID": str(process_id),
        "MCJAX_LOCAL_PROCESS_ID": str(local),
        "MCJAX_LOCAL_NUM_PROCESSES": str(ranks),
    }


def make_own_settings(
    job: Job, host: Host, local: int, ranks: int, facts: HostFacts
) -> dict[str, str]:
    """Return the variables with a rank's own chips and addresses.

    Gloo, JAX's collectives on CPU, listens at the address that the host's own name resolves to:
    Debian's 127.0.1.1 cannot be reached from other hosts, and no address at all is an error.

    Raises:
        LaunchError: the host has too few chips; or its own name resolves to another address, and
            with --no-hook no hook corrects that.

    """
    settings: dict[str, str] = {}
    if job.tpu_chips_per_process is not None:
        settings |= make_tpu_settings(job.tpu_chips_per_process, host, local, ranks, facts)
    if facts.transfer_ports:
        address = join_address(facts.address or LOOPBACK, facts.transfer_ports[local])
        settings[hook_environ.TRANSFER] = address
    names = facts.own_name
    if not facts.address or names is None or facts.address in names:
        return settings
    if not job.hook and job.uses_cpu:
        leads = f"to {names[0]}" if names else "nowhere"
        raise LaunchError(
            f"host {host.name}: its own name resolves {leads}, where JAX's CPU collectives would "
            f"listen: point it to {facts.address} in /etc/hosts there, or leave out --no-hook",
            HOST_LOST,
        )
    return settings | {hook_environ.ADDRESS: facts.address}

"""Environment variables of ranks: common variables and each rank's own."""

import os
from collections.abc import Iterable, Mapping
from itertools import accumulate

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.devices import make_tpu_settings
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.wire import hook_environ
from mcjax_launch.wire.address import LOOPBACK, join_address
from mcjax_launch.wire.exit_status import HOST_LOST
from mcjax_launch.wire.messages import HostFacts


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
    if job.hook and job.on_rank_failure != "stop":
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

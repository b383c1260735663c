"""The variables that a rank gets, and those that it must not inherit; pure."""

from collections.abc import Iterable, Mapping

# What JAX's own detection, or an MPI library, would take for this process's coordinates although
# they are those of the step that the launcher itself runs in.
_MISLEADING = (
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_DISTRIBUTION",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT",
)
_MISLEADING_FAMILIES = ("SLURM_STEP", "OMPI_", "PMI_", "PMIX_", "PRTE_", "MPI_LOCAL", "HYDRA_")
# The outer job's, where one of its ranks starts the launcher again.
_NOT_INHERITED = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_COORDINATOR_BIND_ADDRESS",
    "JAX_COORDINATOR_PORT",
    "JAX_LOCAL_DEVICE_IDS",
)


def misleading(environ: Iterable[str]) -> list[str]:
    """Names in `environ` that would mislead JAX in a rank."""
    return sorted(
        name
        for name in environ
        if name in _MISLEADING
        or name in _NOT_INHERITED
        or name.startswith(_MISLEADING_FAMILIES)
        or name.startswith("MCJAX_HOOK")
    )


def no_proxy(environ: Mapping[str, str], host: str) -> dict[str, str]:
    """Keep gRPC from sending the coordinator's traffic to a proxy, where one is configured.

    Only there: JAX warns in every rank of any variable with `_proxy` in its name.
    """
    if not any(name.lower().endswith("_proxy") for name in environ):
        return {}
    named = [name for name in ("no_proxy", "NO_PROXY") if name in environ] or ["no_proxy"]
    return {name: ",".join(filter(None, (environ.get(name), host))) for name in named}


def common(
    environ: Mapping[str, str],
    user: Mapping[str, str],
    *,
    cpu_devices: int | None,
    hash_seed: int,
) -> dict[str, str]:
    """Variables that are the same in every rank, but for the user's own.

    Args:
        environ: what a rank would inherit.
        user: what the user sets; wins over all of ours.
        cpu_devices: JAX's CPU devices in each rank, if the user wants a number of them.
        hash_seed: one for the whole job, so that sets iterate alike in every rank.

    """
    known = {**environ, **user}
    ours = {"PYTHONUNBUFFERED": "1"}
    if cpu_devices is not None:
        ours["JAX_NUM_CPU_DEVICES"] = str(cpu_devices)
        if "JAX_PLATFORMS" not in known:
            ours["JAX_PLATFORMS"] = "cpu"
    if "PYTHONHASHSEED" not in known:
        ours["PYTHONHASHSEED"] = str(hash_seed)
    return ours

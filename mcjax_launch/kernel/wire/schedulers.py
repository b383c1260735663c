"""The registry of schedulers: for each the variables and words by which every process knows it.

What takes code (its hosts, its client's command line, what `--emit` prints) is in a module of its
name in `mcjax_launch/schedulers/`, which only a run that needs it imports.
"""

from __future__ import annotations

from .value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: How often the job was started again. JobSets have no variable for that: our manifests set this.
ENGINE_RESTART = "MCJAX_ENGINE_RESTART"


class Scheduler(Value):
    """What can be said of a scheduler without code.

    Args:
        name: its own, and its module's.
        inside: variables that are all set in an allocation whose hosts the launcher can use.
        client: the program that reaches those hosts, as in `--via srun`.
        client_options: what that program needs in a template of `--via`.
        client_drops: how variables begin from which it would take options that are for other steps.
        emits: its kinds of `--emit`.
        restarts: the variable that counts how often it has started the job again.
        jax_finds: the variable by which JAX detects it, and then takes its coordinates.
        misleading: variables of the step that the agent runs in, which JAX or an MPI library would
            take for a rank's own. One that ends in `*` stands for all that begin so.

    """

    name: str
    inside: tuple[str, ...] = ()
    client: str = ""
    client_options: tuple[str, ...] = ()
    client_drops: tuple[str, ...] = ()
    emits: tuple[str, ...] = ()
    restarts: str = ""
    jax_finds: str = ""
    misleading: tuple[str, ...] = ()


SCHEDULERS = (
    Scheduler(
        "slurm",
        inside=("SLURM_JOB_ID", "SLURM_JOB_NODELIST"),
        client="srun",
        client_options=("--unbuffered",),  # else it keeps back what does not end a line
        client_drops=(
            *("SRUN_", "SLURM_GPU", "SLURM_TRES_", "SLURM_NTASKS_PER", "SLURM_STD"),
            *("SLURM_MEM_PER", "SLURM_CPUS_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_HOSTFILE"),
            *("SLURM_LABELIO", "SLURM_EXPORT_ENV", "SLURM_KILL_BAD_EXIT", "SLURM_EXACT"),
            "SLURM_EXCLUSIVE",
        ),
        emits=("slurm",),
        restarts="SLURM_RESTART_COUNT",
        jax_finds="SLURM_JOB_ID",
        misleading=(
            *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID"),
            *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_DISTRIBUTION", "SLURM_LAUNCH_NODE_IPADDR"),
            *("SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURM_STEP*"),
        ),
    ),
    Scheduler(
        "kubernetes",
        emits=("jobset", "job"),
        restarts=ENGINE_RESTART,
        jax_finds="KUBERNETES_SERVICE_HOST",
    ),
    # Of any MPI library, and of the schedulers that speak its protocols.
    Scheduler(
        "mpi",
        jax_finds="OMPI_COMM_WORLD_SIZE",
        misleading=("OMPI_*", "PMI_*", "PMIX_*", "PRTE_*", "MPI_LOCAL*", "HYDRA_*"),
    ),
)
#: Each by its client, and by its kinds of `--emit`.
CLIENTS = {one.client: one for one in SCHEDULERS if one.client}
KINDS = {kind: one for one in SCHEDULERS for kind in one.emits}


def around(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler in whose allocation a process with these variables runs."""
    found = (one for one in SCHEDULERS if one.inside and environ.keys() >= {*one.inside})
    return next(found, None)


def restarts_before(environ: Mapping[str, str]) -> int:
    """How often a scheduler has started the job again."""
    counts = (environ.get(one.restarts, "") for one in SCHEDULERS)
    return next((int(count) for count in counts if count.isdecimal()), 0)

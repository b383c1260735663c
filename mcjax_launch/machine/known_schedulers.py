"""Registry of schedulers: their environment variables, clients and other names, as data.

Code for a scheduler's hosts and its client's command line is in `job/slurm.py`, which
is imported only if needed.
"""

from __future__ import annotations

import os

from ..wire.value import Value
from .system import read_system_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How often the job was restarted. JobSets have no variable for that, so our manifests set this.
ENGINE_RESTART = "MCJAX_ENGINE_RESTART"


class Scheduler(Value):
    """Description of a scheduler as data.

    Args:
        name: name of the scheduler.
        title: name of the scheduler in messages.
        inside: groups of variables; if all variables of one group are set, this process is in an
            allocation of the scheduler.
        files: variables whose value is the path of a file that only the job's first host has.
        daemons: names of the scheduler's processes that are ancestors of a job's processes.
        client: program that starts processes on hosts of an allocation, the default of `--via`;
            "" to use ssh.
        client_options: options that a template of `--via` needs for this client.
        client_drops: prefixes of variables to hide from a client, because they hold options for
            other steps or are valid on one host only.
        restarts: variable with the number of the job's restarts, or Y after a restart.
        folder: variable with the path of the folder in which the job was submitted.
        warnings: signals by which the scheduler announces that it will end the job.
        jax_finds: variable by which JAX detects the scheduler.
        misleading: variables of the agent's own step, which JAX or an MPI library would mistake for
            a rank's. A name that ends in `*` stands for all names with that prefix.

    """

    name: str
    title: str = ""
    inside: tuple[tuple[str, ...], ...] = ()
    files: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    client: str = ""
    client_options: tuple[str, ...] = ()
    client_drops: tuple[str, ...] = ()
    restarts: str = ""
    folder: str = ""
    warnings: tuple[str, ...] = ()
    jax_finds: str = ""
    misleading: tuple[str, ...] = ()

    def find_signs(self, environ: Mapping[str, str]) -> Sequence[tuple[str, ...]]:
        """Return the groups of `inside` whose variables are all set and not empty."""
        return [group for group in self.inside if all(map(environ.get, group))]

    def has(self, environ: Mapping[str, str]) -> bool:
        """Return whether these variables show an allocation of this scheduler."""
        return bool(self.find_signs(environ))

    def is_above(self) -> bool:
        """Return whether a daemon of this scheduler is a known ancestor of this process."""
        return not {*self.daemons}.isdisjoint(_read_ancestors("/"))

    def list_file_paths(self, environ: Mapping[str, str]) -> list[str]:
        """Return the paths of the scheduler's files that only the first host of a job has."""
        return [environ[name] for name in self.files if name in environ]


# If the variables of several schedulers are set, and nothing else tells which is the inner one, the
# last in this table wins.
SCHEDULERS = (
    Scheduler(
        "slurm",
        "Slurm",
        inside=(("SLURM_JOB_ID", "SLURM_JOB_NODELIST"),),
        daemons=("slurmstepd", "salloc"),
        client="srun",
        client_options=("--unbuffered",),  # else srun keeps back incomplete lines
        client_drops=(
            *("SRUN_", "SLURM_GPU", "SLURM_TRES_", "SLURM_NTASKS_PER", "SLURM_STD"),
            *("SLURM_MEM_PER", "SLURM_CPUS_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_HOSTFILE"),
            *("SLURM_LABELIO", "SLURM_EXPORT_ENV", "SLURM_KILL_BAD_EXIT", "SLURM_EXACT"),
            "SLURM_EXCLUSIVE",
        ),
        restarts="SLURM_RESTART_COUNT",
        jax_finds="SLURM_JOB_ID",
        misleading=(
            *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID"),
            *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_DISTRIBUTION", "SLURM_LAUNCH_NODE_IPADDR"),
            *("SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURM_STEP*"),
        ),
    ),
    Scheduler(
        "pbs",
        "PBS",
        inside=(("PBS_JOBID", "PBS_NODEFILE"),),
        files=("PBS_NODEFILE",),
        daemons=("pbs_mom",),
        folder="PBS_O_WORKDIR",
        misleading=("PBS_TASKNUM", "PBS_NODENUM", "PBS_VNODENUM"),
    ),
    Scheduler(
        "lsf",
        "LSF",
        inside=(("LSB_JOBID", "LSB_DJOB_HOSTFILE"),),
        files=("LSB_DJOB_HOSTFILE",),
        daemons=("res", "sbatchd"),
        restarts="LSB_RESTART",
        folder="LS_SUBCWD",
        warnings=("SIGUSR2",),  # at the run limit, ten minutes before it kills
        misleading=("LSF_PM_*", "LSB_TASKID", "LSB_TASKINDEX", "JSM_*"),
    ),
    Scheduler(
        "sge",
        "Grid Engine",
        inside=(("JOB_ID", "PE_HOSTFILE"),),
        files=("PE_HOSTFILE",),
        daemons=("sge_shepherd",),
        restarts="RESTARTED",
        folder="SGE_O_WORKDIR",
        warnings=("SIGUSR2",),  # qsub -notify
        misleading=("QRSH_*",),
    ),
    Scheduler(
        "kubernetes",
        restarts=ENGINE_RESTART,
        jax_finds="KUBERNETES_SERVICE_HOST",
    ),
    # Variables of any MPI library, and of schedulers that use its protocols.
    Scheduler(
        "mpi",
        jax_finds="OMPI_COMM_WORLD_SIZE",
        misleading=("OMPI_*", "PMI_*", "PMIX_*", "PRTE_*", "MPI_LOCAL*", "HYDRA_*"),
    ),
)
#: Schedulers by their clients.
CLIENTS = {scheduler.client: scheduler for scheduler in SCHEDULERS if scheduler.client}
_DEEPEST = 100  # most ancestors to examine


def find_scheduler(environ: Mapping[str, str]) -> Scheduler | None:
    """Return the innermost scheduler in whose allocation this process is; None if in none."""
    return choose_scheduler(environ)[0]


def choose_scheduler(environ: Mapping[str, str], root: str = "/") -> tuple[Scheduler | None, str]:
    """Return the innermost scheduler (or None), and the reason for the choice if several match.

    Args:
        environ: environment variables of this process.
        root: path of the root of the file system, for tests.

    """
    found = [scheduler for scheduler in reversed(SCHEDULERS) if scheduler.has(environ)]
    if len(found) < 2:
        return (found[0] if found else None), ""
    titles = " and ".join(scheduler.title for scheduler in reversed(found))
    if environ.get("PBS_JOBID") == environ.get("SLURM_JOB_ID"):  # Slurm's imitation of PBS
        found = [scheduler for scheduler in found if scheduler.name != "pbs"]
    for name in _read_ancestors(root):
        for scheduler in found:
            if name in scheduler.daemons:
                return scheduler, f"variables of {titles}: {name} is the nearest above this process"
    here = [known for known in found if all(map(os.path.exists, known.list_file_paths(environ)))]
    chosen = (here or found)[0]
    return chosen, f"variables of {titles}: {chosen.title}'s job is assumed to be the inner one"


def _read_ancestors(root: str) -> Sequence[str]:
    """Return the names of this process's ancestors that are known, the parent first."""
    names: list[str] = []
    pid = os.getppid()
    while pid > 1 and len(names) < _DEEPEST:
        stat = read_system_text(os.path.join(root, "proc", str(pid), "stat"))
        name, _, rest = stat.partition("(")[2].rpartition(")")
        try:
            pid = int(rest.split()[1])
        except (ValueError, IndexError):
            break
        names.append(name)
    return names


def get_granted_gpus(environ: Mapping[str, str]) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES with the GPUs that Grid Engine granted here; {} if none or set.

    Grid Engine lists them in a variable named after the resource (`0 1`, `gpu0 gpu1`).
    """
    granted = environ.get("SGE_HGR_gpu", "").replace(",", " ").split()
    ids = [word[len(word.rstrip("0123456789")) :] for word in granted]
    if not ids or not all(ids) or "CUDA_VISIBLE_DEVICES" in environ:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(ids)}


def count_restarts(environ: Mapping[str, str]) -> int:
    """Return the number of times that a scheduler has restarted the job; 0 if unknown."""
    # Without Grid Engine, any program may have set `RESTARTED`; other names contain a scheduler's.
    ours = (known for known in SCHEDULERS if "_" in known.restarts or known.has(environ))
    told = (environ.get(scheduler.restarts, "") for scheduler in ours)
    counts = ("1" if text == "Y" else text for text in told)
    return next((int(text) for text in counts if text.isdecimal()), 0)

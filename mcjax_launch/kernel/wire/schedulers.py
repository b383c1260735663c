"""The registry of schedulers: for each the variables and words by which every process knows it.

What takes code (its hosts, its client's command line, what `--emit` prints) is in a module of its
name in `mcjax_launch/schedulers/`, which only a run that needs it imports.
"""

from __future__ import annotations

import os

from .system import text_of
from .value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How often the job was started again. JobSets have no variable for that: our manifests set this.
ENGINE_RESTART = "MCJAX_ENGINE_RESTART"


class Scheduler(Value):
    """What can be said of a scheduler without code.

    Args:
        name: its own, and its module's.
        title: its name in messages.
        inside: variables that are set in an allocation whose hosts the launcher can use; one of
            these groups is enough.
        files: those of them that name a file, which only the job's first host has.
        daemons: what a job's processes descend from.
        client: how those hosts are reached if the user says nothing, as in `--via srun`.
        clients: programs that reach them, other than ssh.
        client_options: what these need in a template of `--via`.
        client_drops: how variables begin from which they would take options that are for other
            steps, or hand on what is true of one host alone.
        emits: its kinds of `--emit`.
        restarts: the variable that counts how often it has started the job again, or is Y.
        folder: the variable with the folder in which the job was submitted.
        warnings: signals by which it announces that it will end the job.
        jax_finds: the variable by which JAX detects it, and then takes its coordinates.
        misleading: variables of the step that the agent runs in, which JAX or an MPI library would
            take for a rank's own. One that ends in `*` stands for all that begin so.

    """

    name: str
    title: str = ""
    inside: tuple[tuple[str, ...], ...] = ()
    files: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    client: str = ""
    clients: tuple[str, ...] = ()
    client_options: tuple[str, ...] = ()
    client_drops: tuple[str, ...] = ()
    emits: tuple[str, ...] = ()
    restarts: str = ""
    folder: str = ""
    warnings: tuple[str, ...] = ()
    jax_finds: str = ""
    misleading: tuple[str, ...] = ()

    def signs(self, environ: Mapping[str, str]) -> Sequence[tuple[str, ...]]:
        """Return the groups of `inside` that are set; an empty variable counts as not set."""
        return [group for group in self.inside if all(map(environ.get, group))]

    def has(self, environ: Mapping[str, str]) -> bool:
        """Whether these are the variables of its allocation."""
        return bool(self.signs(environ))

    def is_above(self, root: str = "/") -> bool:
        """Return whether one of its daemons has started this process, as far as can be known."""
        return not {*self.daemons}.isdisjoint(_ancestors(root))

    def paths(self, environ: Mapping[str, str]) -> list[str]:
        """The files that only the first host of a job has."""
        return [environ[name] for name in self.files if name in environ]


# Of one host, or of the shell that started the launcher: not for the ranks of another host.
_ONE_HOSTS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_")

# Where the variables of several are set, and nothing else tells them apart, the last is taken for
# the inner one: Flux runs in the allocations of others.
SCHEDULERS = (
    Scheduler(
        "slurm",
        "Slurm",
        inside=(("SLURM_JOB_ID", "SLURM_JOB_NODELIST"),),
        daemons=("slurmstepd", "salloc"),
        client="srun",
        clients=("srun",),
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
        "pbs",
        "PBS",
        inside=(("PBS_JOBID", "PBS_NODEFILE"),),
        files=("PBS_NODEFILE",),
        daemons=("pbs_mom",),
        client="ssh",
        clients=("pbsdsh", "pbs_tmrsh"),
        emits=("pbs",),
        folder="PBS_O_WORKDIR",
        misleading=("PBS_TASKNUM", "PBS_NODENUM", "PBS_VNODENUM"),
    ),
    Scheduler(
        "lsf",
        "LSF",
        inside=(
            ("LSB_JOBID", "LSB_DJOB_HOSTFILE"),
            ("LSB_JOBID", "LSB_MCPU_HOSTS"),
            ("LSB_JOBID", "LSB_HOSTS"),
        ),
        daemons=("res", "sbatchd"),
        client="blaunch",
        clients=("blaunch",),
        client_drops=_ONE_HOSTS,
        emits=("lsf",),
        restarts="LSB_RESTART",
        folder="LS_SUBCWD",
        warnings=("SIGUSR2",),  # at the run limit, ten minutes before it kills
        misleading=("LSF_PM_*", "LSB_TASKID", "LSB_TASKINDEX", "JSM_*"),
    ),
    Scheduler(
        "sge",
        "Grid Engine",
        inside=(("JOB_ID", "PE_HOSTFILE"), ("JOB_ID", "SGE_TASK_ID")),
        files=("PE_HOSTFILE",),
        daemons=("sge_shepherd",),
        client="qrsh",
        clients=("qrsh",),
        client_drops=(*_ONE_HOSTS, "SGE_HGR_", "BASH_FUNC_"),  # it mangles functions
        emits=("sge",),
        restarts="RESTARTED",
        folder="SGE_O_WORKDIR",
        warnings=("SIGUSR2",),  # qsub -notify
        misleading=("QRSH_*",),
    ),
    Scheduler(
        "flux",
        "Flux",
        inside=(("FLUX_URI",), ("FLUX_JOB_ID",)),
        daemons=("flux-broker", "flux-shell"),
        client="flux",
        clients=("flux",),
        client_drops=_ONE_HOSTS,
        emits=("flux",),
        # What --signal sends, and what a broker makes of a SIGTERM.
        warnings=("SIGUSR1", "SIGHUP"),
        misleading=("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES"),
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
#: Each by its clients, and by its kinds of `--emit`.
CLIENTS = {client: one for one in SCHEDULERS for client in one.clients}
KINDS = {kind: one for one in SCHEDULERS for kind in one.emits}
_DEEPEST = 100  # processes above this one


def around(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler in whose allocation a process with these variables runs: the inner one."""
    return inner(environ)[0]


def inner(environ: Mapping[str, str], root: str = "/") -> tuple[Scheduler | None, str]:
    """The same, and why it is this one where the variables of several are set.

    Args:
        environ: of this process.
        root: of the file system.

    """
    found = [one for one in reversed(SCHEDULERS) if one.has(environ)]
    if len(found) < 2:
        return (found[0] if found else None), ""
    titles = " and ".join(one.title for one in reversed(found))
    if environ.get("PBS_JOBID") == environ.get("SLURM_JOB_ID"):  # Slurm's imitation of PBS
        found = [one for one in found if one.name != "pbs"]
    for name in _ancestors(root):
        for one in found:
            if name in one.daemons:
                return one, f"variables of {titles}: {name} is the nearest above this process"
    here = [one for one in found if all(map(os.path.exists, one.paths(environ)))]
    one = (here or found)[0]
    return one, f"variables of {titles}: {one.title}'s job is taken for the inner one"


def _ancestors(root: str) -> Sequence[str]:
    """The names of the processes above this one, the nearest first; as far as can be known."""
    names: list[str] = []
    pid = os.getppid()
    while pid > 1 and len(names) < _DEEPEST:
        stat = text_of(os.path.join(root, "proc", str(pid), "stat"))
        name, _, rest = stat.partition("(")[2].rpartition(")")
        try:
            pid = int(rest.split()[1])
        except (ValueError, IndexError):
            break
        names.append(name)
    return names


def granted_gpus(environ: Mapping[str, str]) -> dict[str, str]:
    """What makes a program use the GPUs that Grid Engine has granted the job on this host.

    It says which in a variable of its own (`0 1`, `gpu0 gpu1`), after the resource's name.
    """
    granted = environ.get("SGE_HGR_gpu", "").replace(",", " ").split()
    ids = [word[len(word.rstrip("0123456789")) :] for word in granted]
    if not ids or not all(ids) or "CUDA_VISIBLE_DEVICES" in environ:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(ids)}


def restarts_before(environ: Mapping[str, str]) -> int:
    """How often a scheduler has started the job again."""
    # `RESTARTED` may be anybody's where no scheduler is around; the others carry one's name.
    ours = (one for one in SCHEDULERS if "_" in one.restarts or one.has(environ))
    counts = (environ.get(one.restarts, "") for one in ours)
    return next((_count(text) for text in counts if text.isdecimal() or text == "Y"), 0)


def _count(text: str) -> int:
    return 1 if text == "Y" else int(text)

"""Options for --emit, which prints a scheduler's script or manifest and runs nothing."""

from __future__ import annotations

from mcjax_launch.options import kinds
from mcjax_launch.options.option import OptionGroup, declare_option

_OF_EMIT = {"only_command": "it is for --emit", "needs": "--emit KIND"}


class BatchOptions(
    OptionGroup,
    title="Batch scripts and manifests",
    example=(
        "A batch script for four Slurm nodes with one rank per node:",
        "mcjax-launch --emit slurm --num-hosts 4 --timeout 2h -m package.train",
    ),
    kw_only=True,
):
    """Options on batch scripts and manifests."""

    emit: str | None = declare_option(
        kinds.make_choice_kind("slurm", "jobset", "job"),
        in_project=False,
        only_command="it runs nothing",
        help="Print a batch script or manifest that requests --num-hosts N and runs this job; "
        "start nothing.",
    )
    image: str | None = declare_option(
        kinds.TEXT,
        metavar="IMAGE",
        **_OF_EMIT,
        help="Container image with mcjax-launch and JAX, which jobset and job need, as "
        "registry/name:tag.",
    )
    name: str | None = declare_option(
        kinds.TEXT,
        metavar="NAME",
        **_OF_EMIT,
        shown="PROGRAM's name",
        help="Name of the job, as the scheduler lists it and its pods are called.",
    )
    namespace: str | None = declare_option(
        kinds.TEXT,
        metavar="NAME",
        **_OF_EMIT,
        help="Kubernetes namespace of the job, where it is not that of kubectl's present context.",
    )
    tpu: str | None = declare_option(
        kinds.TEXT,
        metavar="TYPE:TOPOLOGY",
        **_OF_EMIT,
        help="TPU slice to request from GKE, as in tpu-v6e-slice:4x4; --slices K: K of them.",
    )
    engine_option: tuple[str, ...] = declare_option(
        kinds.TEXT,
        metavar="OPTION",
        default=(),
        repeats=True,
        **_OF_EMIT,
        help="Scheduler's option to add to a batch script, as in --partition=gpu. Repeatable.",
    )


def acts(options: OptionGroup) -> bool:
    """Return whether the command prints something for a scheduler in place of running a job."""
    return BatchOptions.of(options).emit is not None


def list_irrelevant(options: OptionGroup) -> tuple[str, ...]:
    """Return the names of options that a scheduler decides on."""
    return ("hosts", "via") if acts(options) else ()


EXAMPLE = "mcjax-launch --emit slurm --num-hosts 2 train.py > job.sh"
_SBATCH = "it is sbatch's: give it to sbatch or salloc; --emit slurm --engine-option {}"
_IN_A_SCRIPT = f"{_SBATCH} puts it into a batch script"
ADVISED = {
    "use --name NAME, with --emit slurm": "job-name J",
    f"{_IN_A_SCRIPT.format('{}=VALUE')}; --bind-cores on gives each rank its share of a host's "
    "cores": "cpus-per-task",
    _IN_A_SCRIPT.format("--account=VALUE"): "A",
    _IN_A_SCRIPT.format("--partition=VALUE"): "p",
    _IN_A_SCRIPT: "exclusive",
    _IN_A_SCRIPT.format("{}=VALUE"): (
        "account partition qos gres gpus-per-socket constraint mem mem-per-cpu mem-per-gpu "
        "licenses reservation exclude array dependency mail-type mail-user comment begin deadline "
        "switches clusters hint signal threads-per-core cpus-per-gpu"
    ),
}

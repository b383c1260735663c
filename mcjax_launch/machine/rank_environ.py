"""Environment variables that a rank inherits from its host, and those that it must not; pure.

They are computed on the rank's own host, because ranks inherit that host's variables, not the
launcher's.
"""

from __future__ import annotations

import os

from ..wire import hook_environ
from .known_schedulers import SCHEDULERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MPI = "mpi"
# Both list the processes of a TPU slice; the file that the second names takes precedence.
_TPU_ADDRESSES, _TPU_ADDRESSES_FILE = "TPU_PROCESS_ADDRESSES", "TPU_PROCESS_ADDRESSES_PATH"
# Variables of one attempt of an outer mcjax-launch job, if one of its ranks has started this
# launcher: who takes part there, and where these meet. An inner job would wait for them.
_OUTER_JOBS = (
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS"),
    *("CLOUD_TPU_TASK_ID", "TPU_PROCESS_BOUNDS", "TPU_PROCESS_ADDRESSES", "TPU_PROCESS_PORT"),
    _TPU_ADDRESSES_FILE,
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
# Prefix of the variables by which the slices of a TPU job find each other.
_OUTER_SLICES = "MEGASCALE_"
_JOB = "MCJAX_JOB_ID"
_OURS = "MCJAX_"  # options of this launcher, not of an inner launcher


def list_misleading_names(environ: Iterable[str], *, hook: bool = True) -> list[str]:
    """Return the names in `environ` that would mislead JAX in a rank.

    Args:
        environ: environment variables of the host.
        hook: True if ranks load the hook. Without it, only an MPI library's variables mislead,
            and JAX must still be able to detect a scheduler.

    """
    schedulers = [known for known in SCHEDULERS if hook or known.name == _MPI]
    known = [name for scheduler in schedulers for name in scheduler.misleading]
    families = tuple(name[:-1] for name in known if name.endswith("*"))
    return sorted(name for name in environ if name in known or name.startswith(families))


def select_inherited(
    environ: Mapping[str, str], common: Mapping[str, str], own: Iterable[str], *, hook: bool
) -> dict[str, str]:
    """Return the variables that ranks inherit from the agent; an outer job's are left out.

    Args:
        environ: environment variables of the agent.
        common: variables that the job sets in all ranks.
        own: names of the variables that the job sets in single ranks.
        hook: True if ranks load the hook.

    """
    kept = without_outer_job(environ)
    is_lone = common["JAX_NUM_PROCESSES"] == "1"  # it may be the outer step's own process
    left_out = list_misleading_names(kept, hook=hook) if hook or not is_lone else []
    if _TPU_ADDRESSES in own:
        left_out.append(_TPU_ADDRESSES_FILE)
    return {name: value for name, value in kept.items() if name not in left_out}


def leave_coordinator_to_scheduler(
    common: Mapping[str, str], inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return `common`, without the coordinator if the job's only rank runs under a scheduler.

    JAX then gets the coordinator from the scheduler. Used if the hook is off.
    """
    outer = any(scheduler.jax_finds in inherited for scheduler in SCHEDULERS)
    if not outer or common["JAX_NUM_PROCESSES"] != "1":
        return dict(common)
    return {name: value for name, value in common.items() if name != "JAX_COORDINATOR_ADDRESS"}


def without_outer_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the variables of an outer mcjax-launch job."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    if _JOB in environ:
        kept = {
            name: value
            for name, value in kept.items()
            if name not in _OUTER_JOBS and not name.startswith(_OUTER_SLICES)
        }
    if hook_environ.FOLDER in environ and "PYTHONPATH" in kept:
        entries = kept["PYTHONPATH"].split(os.pathsep)
        entries = [entry for entry in entries if entry != environ[hook_environ.FOLDER]]
        kept["PYTHONPATH"] = os.pathsep.join(entries)
        if not entries:
            del kept["PYTHONPATH"]
    return kept


def with_hook(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return `environ` with the hook's folder first on PYTHONPATH and in MCJAX_HOOK_FOLDER."""
    found = environ.get("PYTHONPATH")
    path = folder + (os.pathsep + found if found else "")
    return {**environ, "PYTHONPATH": path, hook_environ.FOLDER: folder}


def make_no_proxy_settings(environ: Mapping[str, str], host: str) -> dict[str, str]:
    """Return the variables that keep gRPC from using a proxy for the coordinator, `host`.

    They are {} if `environ` sets no proxy, because JAX warns of such variables.
    """
    names = {name for name in environ if name.lower().endswith("_proxy")}
    exceptions = names & {"no_proxy", "NO_PROXY"}
    if names == exceptions:
        return {}
    found = {name: environ.get(name, "").split(",") for name in exceptions or {"no_proxy"}}
    return {
        name: ",".join(filter(None, (*hosts, host)))
        for name, hosts in found.items()
        if host not in hosts
    }


def compute_changes(
    inherited: Mapping[str, str],
    *,
    common: Mapping[str, str],
    defaults: Mapping[str, str],
    own: Mapping[str, str],
    coordinator_host: str,
) -> dict[str, str]:
    """Return the variables to set in a rank, in addition to the inherited variables.

    Args:
        inherited: variables that the rank inherits, from `select_inherited`.
        common: variables that the job sets in all ranks.
        defaults: the same, except those that the host or the user sets.
        own: variables of this rank, including the user's; they override all others.
        coordinator_host: host of the coordinator, to be reached without a proxy.

    """
    kept = {name: value for name, value in defaults.items() if name not in inherited}
    found = {**common, **kept, **own}
    return {**found, **make_no_proxy_settings({**inherited, **found}, coordinator_host)}

"""Checks that the launcher runs once in an allocation, and advice for shells outside one."""

from collections.abc import Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.machine.known_schedulers import Scheduler

# Variables by which an MPI starter tells how many processes it has started, by the starter's name.
_STARTERS = {
    "OMPI_COMM_WORLD_SIZE": "mpirun",
    "PMI_SIZE": "mpiexec",
    "MPI_LOCALNRANKS": "mpiexec",
    "JSM_NAMESPACE_SIZE": "jsrun",
}


def check_alone(environ: Mapping[str, str], where: str) -> None:
    """Refuse to run if mpirun or a similar command has started several launchers.

    Args:
        environ: variables of the launcher.
        where: right place to start a single launcher, in words.

    Raises:
        LaunchError: several launchers were started.

    """
    for name, starter in _STARTERS.items():
        count = environ.get(name, "")
        if count.isdecimal() and int(count) > 1:
            raise LaunchError(
                f"{starter} has started {int(count)} launchers, one per task: start a single "
                f"launcher, in {where}"
            )


def advise_outside(scheduler: Scheduler, environ: Mapping[str, str], slots: int = 1) -> str:
    """Return advice for a user whose shell has a job's variables although it is outside the job.

    Args:
        scheduler: scheduler whose variables are set.
        environ: variables of the launcher.
        slots: number of slots on this machine, for the advice.

    Returns:
        words to append to an error; "" if the scheduler has started this process.

    """
    groups = scheduler.find_signs(environ)
    if not groups or scheduler.is_above():
        return ""
    found = " and ".join(f"{name}={environ[name]}" for name in groups[0])
    are = "are" if len(groups[0]) > 1 else "is"
    first = " ".join(dict.fromkeys(group[0] for group in groups))
    here = "localhost" if slots == 1 else f"localhost:{slots}"
    return (
        f"{found} {are} set, as in a job of {scheduler.title}; outside one, unset {first} or add "
        f"--hosts {here}"
    )

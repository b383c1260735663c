"""Common functions of schedulers' drivers, on the hosts of an allocation."""

import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host, parse_file
from mcjax_launch.machine.known_schedulers import Scheduler
from mcjax_launch.ranks import format_count

#: How long a scheduler's own command may take to answer.
ANSWER_S = 20.0
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
            raise make_several_error(
                f"{starter} has started {int(count)} launchers, one per task", where
            )


def check_slots(wanted: int, hosts: Sequence[Host], title: str, lacks: str) -> None:
    """Refuse more ranks than an allocation has slots.

    Args:
        wanted: number of ranks; 0 for the number of slots.
        hosts: hosts of the allocation.
        title: name of the scheduler.
        lacks: the scheduler's reason for too few slots, with the cure; "" for a general message.

    Raises:
        LaunchError: there are fewer slots.

    """
    slots = sum(host.slots for host in hosts)
    if wanted > slots:
        there_are = f"{title}'s allocation has {format_count(slots, 'slot')}"
        more = f"{there_are}; request more slots, or set --procs-per-host K"
        raise LaunchError(f"-n {wanted}: {lacks or more}")


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


def make_several_error(what: str, where: str) -> LaunchError:
    """Return the error that several launchers were started, by the command `what`."""
    return LaunchError(f"{what}: start a single launcher, in {where}")


def read(variable: str, environ: Mapping[str, str], where: str) -> str:
    """Return the text of the file whose path is in a variable.

    Args:
        variable: name of the variable.
        environ: variables of the launcher.
        where: place in which the launcher should run, in words, for the error.

    Raises:
        LaunchError: the file cannot be read: this may not be the host of the job's script.

    """
    path = environ[variable]
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise LaunchError(
            f"{variable}={path}: {error.strerror}: run mcjax-launch in {where}, which has the "
            "file, not on a login node or from another of its hosts"
        ) from None


def make_hosts(
    counts: Iterable[tuple[str, int]],
    origin: str,
    slots: int | None,
    devices: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Host, ...]:
    """Return hosts from names and slots; the slots of equal names add up.

    Args:
        counts: pairs of a host's name and its slots.
        origin: source of the counts, for errors.
        slots: slots of every host, in place of the counts; None to use the counts.
        devices: ids of the GPUs assigned on each host, by its name; None if unknown.

    Raises:
        LaunchError: there are no hosts, or names or numbers are wrong.

    """
    lines = [f"{name} slots={count}" for name, count in counts]
    own = {socket.gethostname().lower(), get_own_name().lower()}
    given = devices or {}
    hosts = []
    for host in parse_file("\n".join(lines), origin, 1):
        listed = given.get(host.name)
        hosts.append(
            host.copy_with(
                slots=slots or host.slots,
                gpus=None if listed is None else len(listed),
                devices=",".join(listed or ()),
                here=host.name.lower() in own or host.name.lower().partition(".")[0] in own,
            )
        )
    return tuple(hosts)


def get_own_name() -> str:
    """Return the name of this machine, without its domain."""
    return socket.gethostname().partition(".")[0]


def run_client(*argv: str, limit_s: float = ANSWER_S) -> str:
    """Return the stdout of a command; "" if it is missing, fails, or takes over `limit_s`."""
    try:
        ended = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""

"""Construction of a Job from the options; pure."""

from collections.abc import Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job, check_ranks
from mcjax_launch.options.kinds import check_slices
from mcjax_launch.options.options import Options
from mcjax_launch.options.wrappers import Wrapper, parse
from mcjax_launch.ranks import MOST_RANKS
from mcjax_launch.request.this_machine import ThisMachine


def make_job(
    options: Options, hosts: Sequence[Host], here: ThisMachine, sizes: tuple[int, ...] = ()
) -> Job:
    """Make the Job that the options describe.

    Args:
        options: checked options.
        hosts: hosts with slots for ranks.
        here: facts that this machine adds to the options.
        sizes: with --preview, number of ranks on each host of the whole job.

    Raises:
        LaunchError: without -n the hosts have too many slots for a job; an option names a rank
            that does not exist; or the slices do not divide the ranks.

    """
    num_hosts = options.num_hosts or 1
    num_processes = _compute_num_processes(options, hosts, num_hosts)
    if sizes:
        num_processes = sum(sizes)
    check_ranks("--show", options.show or frozenset(), num_processes)
    completed: dict[str, object] = {
        "num_processes": num_processes,
        "num_hosts": num_hosts,
        "host_rank": options.host_rank or 0 if options.num_hosts else 0,
        "program": _replace_python(options, here.python.python),
        "python_given": options.python is not None,
        "chdir_given": options.chdir is not None,
        "hook": not options.no_hook,
        "wrappers": _parse_wrappers(options, num_processes),
    }
    return Job(**vars(options) | here._asdict() | here.python._asdict() | completed)


def _replace_python(options: Options, python: str) -> tuple[str, ...]:
    """Return PROGRAM and its arguments, `python` or `python3` replaced if --python is given.

    With -m, PROGRAM is a module, and never replaced.

    Args:
        options: options of the command line.
        python: path that --python was resolved to.

    """
    names_python = not options.module and options.program[:1] in (("python",), ("python3",))
    given = options.python is not None and names_python
    return (python, *options.program[1:]) if given else options.program


def _compute_num_processes(options: Options, hosts: Sequence[Host], num_hosts: int) -> int:
    num_processes = options.num_processes or _count_slots(hosts, num_hosts)
    try:
        check_slices(options.slices, num_processes)
    except ValueError as error:
        raise LaunchError(f"--slices {options.slices}: {error}") from None
    return num_processes


def _count_slots(hosts: Sequence[Host], num_hosts: int) -> int:
    """Return the job's number of slots: those of this launcher's hosts, times `num_hosts`.

    Args:
        hosts: hosts of this launcher.
        num_hosts: number of launchers (--num-hosts), each with equal slots; 1 without the option.

    Raises:
        LaunchError: a job cannot have so many ranks.

    """
    slots = sum(host.slots for host in hosts) * num_hosts
    if slots > MOST_RANKS:
        raise LaunchError(f"{slots} ranks: a job has {MOST_RANKS} at most; set -n")
    return slots


def _parse_wrappers(options: Options, num_processes: int) -> tuple[Wrapper, ...]:
    """Return the parsed values of --wrap; their ranks must exist."""
    wrappers = tuple(parse(text) for text in options.wrap)
    for wrapper in wrappers:
        check_ranks("--wrap", wrapper.ranks or frozenset(), num_processes)
    return wrappers

"""Driver for LSF: the hosts of a job from a file or variables."""

import os
from collections.abc import Iterator, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.ranks import MOST_RANKS, parse_whole_number
from mcjax_launch.schedulers import Driver, allocation

_SCRIPT = "the job's script, or in the shell of bsub -Is"
# The beginnings of the names of nodes that only start jobs; ranks run on all other nodes.
_LAUNCH_NODES = ("batch", "login")


class Lsf(Driver):
    """Driver for LSF: the launcher runs in the job's script, the ranks on the compute hosts."""

    def find_hosts(self, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
        """Return the hosts with their slots, without the node that only starts jobs."""
        task = environ.get("LSF_PM_TASKID", environ.get("LSB_TASKINDEX", ""))
        if task.isdecimal() and int(task) > 1:
            raise allocation.make_several_error(
                f"blaunch has started this launcher as task {task}", _SCRIPT
            )
        allocation.check_alone(environ, _SCRIPT)
        origin, listed = _read_host_slots(environ)
        only_starts = _find_launch_node(listed, environ)
        counts = [pair for pair in listed if pair[0] != only_starts]
        return allocation.make_hosts(counts, origin, slots)


DRIVER = Lsf()


def _read_host_slots(environ: Mapping[str, str]) -> tuple[str, list[tuple[str, int]]]:
    """Return the variable that lists the hosts (directly or in a file), and hosts with slots.

    A long list is only in the file, which may exist on the first host only.

    Raises:
        LaunchError: the list cannot be read.

    """
    path = environ.get("LSB_DJOB_HOSTFILE")
    alone = "LSB_MCPU_HOSTS" not in environ and "LSB_HOSTS" not in environ
    if path is not None and (alone or os.path.exists(path)):
        text = allocation.read("LSB_DJOB_HOSTFILE", environ, _SCRIPT)
        return "LSB_DJOB_HOSTFILE", list(_parse_lines(text))
    if "LSB_MCPU_HOSTS" in environ:
        return "LSB_MCPU_HOSTS", list(_parse_pairs(environ["LSB_MCPU_HOSTS"]))
    return "LSB_HOSTS", [(name, 1) for name in environ["LSB_HOSTS"].split()]


def _parse_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield (host, slots) for each line of a file: a name, with its number of slots or 1."""
    for words in map(str.split, text.splitlines()):
        if words:
            yield words[0], int(words[1]) if words[1:] and words[1].isdecimal() else 1


def _parse_pairs(text: str) -> Iterator[tuple[str, int]]:
    """Yield (host, slots) from a text such as `a 4 b 4`."""
    words = text.split()
    try:
        for name, count in zip(words[::2], words[1::2], strict=True):
            yield name, parse_whole_number(count, 1, MOST_RANKS)
    except ValueError:
        raise LaunchError(f"LSB_MCPU_HOSTS={text}: expected names and numbers: a 4 b 4") from None


def _find_launch_node(counts: Sequence[tuple[str, int]], environ: Mapping[str, str]) -> str:
    """Return the first host if it only launches jobs; "" if it can run ranks too."""
    first = counts[0][0] if counts else ""
    slots = [count for name, count in counts if name == first]
    is_one = first.lower().startswith(_LAUNCH_NODES) or "CSM_ALLOCATION_ID" in environ
    return first if is_one and slots == [1] and len(counts) > 1 else ""

"""Driver for PBS, LSF and Grid Engine, which name the hosts of a job in a file."""

from collections.abc import Iterator, Mapping

from mcjax_launch.job.hosts import Host
from mcjax_launch.machine.known_schedulers import HOST_FILES
from mcjax_launch.schedulers import Driver, allocation

_SCRIPT = "the job's script"


class HostFile(Driver):
    """Driver for schedulers whose variable in `HOST_FILES` names a file of hosts.

    A line has a host's name and, unless each line is a slot, its number of slots. ssh starts the
    agents: the schedulers' own clients carry no binary streams.
    """

    def find_hosts(self, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
        """Return the hosts of the file, each with its slots."""
        allocation.check_alone(environ, _SCRIPT)
        variable = next(name for name in HOST_FILES if name in environ)
        counts = _parse(allocation.read(variable, environ, _SCRIPT))
        return allocation.make_hosts(counts, variable, slots)


def _parse(text: str) -> Iterator[tuple[str, int]]:
    """Yield a name and its slots for each line."""
    for words in map(str.split, text.splitlines()):
        if words:
            yield words[0], int(words[1]) if words[1:] and words[1].isdecimal() else 1


DRIVER = HostFile()

"""Driver for Grid Engine: hosts of a parallel environment."""

from collections.abc import Mapping

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.ranks import MOST_RANKS, parse_whole_number
from mcjax_launch.schedulers import Driver, allocation

_SCRIPT = "the job's script"


class GridEngine(Driver):
    """Driver for Grid Engine.

    ssh starts the agents: `qrsh -inherit` stalls once a host has been sent about 60 KB.
    """

    def find_hosts(self, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
        """Return the hosts and slots of the parallel environment; without one, this machine."""
        allocation.check_alone(environ, _SCRIPT)
        if environ.get("JOB_SCRIPT") == "QRSH" and environ.get("JOB_NAME") == "petask":
            raise allocation.make_several_error(
                "qrsh -inherit has started this launcher as a task of the job", _SCRIPT
            )
        if "PE_HOSTFILE" not in environ:
            return (Host(name=allocation.get_own_name(), slots=slots or 1, here=True),)
        counts = []
        for line in allocation.read("PE_HOSTFILE", environ, _SCRIPT).splitlines():
            words = line.split()  # name, slots, queue, cores
            if not words:
                continue
            try:
                counts.append((words[0], parse_whole_number("".join(words[1:2]), 1, MOST_RANKS)))
            except ValueError:
                raise LaunchError(
                    f"PE_HOSTFILE={environ['PE_HOSTFILE']}: {line}: expected a name and its slots"
                ) from None
        return allocation.make_hosts(counts, "PE_HOSTFILE", slots)

    def explain_few_slots(self, environ: Mapping[str, str]) -> str:
        """Return a message that the job has no parallel environment; "" if it has one."""
        if "PE_HOSTFILE" in environ:
            return ""
        job = f"Grid Engine's job {environ['JOB_ID']}"
        return f"{job} has no parallel environment, so one slot: submit it with qsub -pe NAME SLOTS"


DRIVER = GridEngine()

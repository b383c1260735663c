"""Driver for PBS Pro, OpenPBS and Torque: hosts from the node file."""

import os
from collections.abc import Mapping

from mcjax_launch.job.hosts import Host
from mcjax_launch.schedulers import Driver, allocation

_SCRIPT = "the job's script, or in the shell of qsub -I"
_QSTAT_S = 5.0
_LONGEST_COUNT = 10


class Pbs(Driver):
    """Driver for PBS, whose node file has a line for each slot.

    The launcher must run in the job's first task. ssh starts the agents: `pbsdsh` and `pbs_tmrsh`
    forward no streams.
    """

    def find_hosts(self, environ: Mapping[str, str], slots: int | None) -> tuple[Host, ...]:
        """Return the hosts, each with a slot for each of its lines in the node file."""
        lines = allocation.read("PBS_NODEFILE", environ, _SCRIPT).split()  # one for each slot
        task = environ.get("PBS_TASKNUM", "").lstrip("0")
        if len(lines) > 1 and task not in ("", "1"):
            raise allocation.make_several_error(
                f"pbsdsh has started this launcher as task {task} of the job", _SCRIPT
            )
        allocation.check_alone(environ, _SCRIPT)
        return allocation.make_hosts(
            ((line, 1) for line in lines), "PBS_NODEFILE", slots, _read_gpu_file(environ)
        )

    def count_restarts(self, environ: Mapping[str, str]) -> int:
        """Return the number of restarts from `qstat -f`: run_count or start_count, less 1."""
        shown = allocation.run_client("qstat", "-f", environ["PBS_JOBID"], limit_s=_QSTAT_S)
        fields = dict(line.strip().partition(" = ")[::2] for line in shown.splitlines())
        count = fields.get("run_count", fields.get("start_count", ""))
        return max(int(count) - 1, 0) if count.isdecimal() and len(count) < _LONGEST_COUNT else 0


DRIVER = Pbs()


def _read_gpu_file(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the GPU ids of each host from Torque's file of lines `node1-gpu0`; {} if none."""
    if not os.path.exists(environ.get("PBS_GPUFILE", "")):
        return {}
    found: dict[str, list[str]] = {}
    for line in allocation.read("PBS_GPUFILE", environ, _SCRIPT).split():
        name, _, number = line.rpartition("-gpu")
        if name and number.isdecimal():
            found.setdefault(name, []).append(number)
    return found

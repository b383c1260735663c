"""What a job takes while nothing happens, or while nobody reads its output."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.bench import Bench
from benchmarks.measure import OURS, Measure
from benchmarks.processes import Marked, pss_mb

T = TypeVar("T")
_PARTS = ("launcher", "guardian", "agent")
_READY = ["bash", "-c", "echo ready; exec sleep 1000"]
_FLOOD = ["bash", "-c", "echo ready; exec yes 0123456789012345678901234567890123456789"]
_IDLE_S = 10.0
_STALLED_S = 5.0


def memory(bench: Bench) -> list[Measure]:
    """PSS: what is shared with other processes counts in part."""
    own = while_idle([*bench.ours, "-n", "4", *_READY], 4, lambda pid, _: _of_parts(pid))
    stalled = while_idle([*bench.ours, "-n", "4", *_FLOOD], 1, _stalled)
    parts = {OURS: [sum(own)], **{f"its {n}": [mb] for n, mb in zip(_PARTS, own, strict=True)}}
    return [
        Measure("memory of an idle job of 4 ranks, without the ranks (PSS)", "MB", parts),
        Measure(
            f"the same after 4 ranks have flooded a stalled reader for {_STALLED_S:g} s",
            "MB",
            {OURS: [sum(stalled)]},
        ),
    ]


def idle(bench: Bench) -> list[Measure]:
    """How often the launcher, the guardian and the agent wake up."""

    def measure(pid: int, marked: Marked) -> list[int]:
        before = [_switches(family_pid) for family_pid in _family(pid)]
        time.sleep(_IDLE_S)
        return [
            _switches(family_pid) - was
            for family_pid, was in zip(_family(pid), before, strict=True)
        ]

    woken = while_idle([*bench.ours, "-n", "4", *_READY], 4, measure)
    title = f"wake-ups of launcher, guardian and agent of an idle job in {_IDLE_S:g} s"
    return [Measure(title, "", {OURS: [float(sum(woken))]})]


def while_idle(command: Sequence[str], ready: int, measure: Callable[[int, Marked], T]) -> T:
    """Measure a job that has printed so many lines."""
    marked = Marked()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=marked.environ
    ) as job:
        assert job.stdout is not None
        try:
            for _ in range(ready):
                job.stdout.readline()
            time.sleep(0.5)
            return measure(job.pid, marked)
        finally:
            marked.kill()


def _family(pid: int) -> list[int]:
    """Return the pids of the launcher, the guardian and the agent."""
    found, at = [pid], pid
    for _ in range(2):
        at = int(Path(f"/proc/{at}/task/{at}/children").read_text().split()[0])
        found.append(at)
    return found


def _of_parts(pid: int) -> list[float]:
    return [pss_mb(family_pid) for family_pid in _family(pid)]


def _stalled(pid: int, marked: Marked) -> list[float]:
    time.sleep(_STALLED_S)
    return _of_parts(pid)


def _switches(pid: int) -> int:
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in fields if "ctxt_switches" in line)

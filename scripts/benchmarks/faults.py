"""For each fault: which processes are left behind, after how long there are none, exit status."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import PYTHON, Bench
from benchmarks.measure import OURS, Grid
from benchmarks.processes import Marked, command_of

_RANKS = 3
_START_S = 10.0
_LIMIT_S, _QUICK_S = 8.0, 3.0
# The first rank to come is the one to which something happens.
_FIRST = (
    'if mkdir "$BENCH_FOLDER/first" 2> /dev/null; then first=1; fi; '
    'echo ready >> "$BENCH_FOLDER/ready"; '
)
_WAIT = 'until [ -e "$BENCH_FOLDER/go" ]; do sleep 0.05; done; '
_DAEMON = f"{PYTHON} -c 'import os, time; os.setsid(); time.sleep(1000)' & sleep 0.3; "


@dataclass(frozen=True)
class _Fault:
    """A fault.

    Args:
        script: of each rank; it has `first` set in one of them.
        then: what is done to the launcher once all ranks run.
        only_ours: options of ours that it needs; others are not tried.

    """

    script: str
    then: Callable[[int, Marked], object] = lambda pid, marked: None
    only_ours: tuple[str, ...] = ()


def _signal(signum: int) -> Callable[[int, Marked], object]:
    return lambda pid, marked: os.kill(pid, signum)


def _kill_helper(pid: int, marked: Marked) -> None:
    """Kill what stands between the launcher and the ranks, a rank's own parent."""
    others = {other for other in marked.pids() if other != pid}
    ranks = {other for other in others if "BENCH_FOLDER" in command_of(other)}
    helpers = {_parent(rank) for rank in ranks} & (others - ranks)  # and no process of others
    if not helpers:
        raise _NotThere
    os.kill(min(helpers), signal.SIGKILL)


class _NotThere(Exception):
    """The launcher has no such process."""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


_FAULTS = {
    "a rank ends with 3": _Fault(_FIRST + _WAIT + '[ "$first" ] && exit 3; sleep 1000'),
    "a rank is killed": _Fault(_FIRST + _WAIT + '[ "$first" ] && kill -9 $$; sleep 1000'),
    "the same; the others ignore TERM": _Fault(
        "trap '' TERM; " + _FIRST + _WAIT + '[ "$first" ] && exit 3; while :; do sleep 1; done'
    ),
    "all end with 0, and each leaves a daemon": _Fault(_FIRST + _DAEMON + _WAIT),
    "INT to the launcher": _Fault(_FIRST + "exec sleep 1000", _signal(signal.SIGINT)),
    "TERM to the launcher": _Fault(_FIRST + "exec sleep 1000", _signal(signal.SIGTERM)),
    "HUP to the launcher": _Fault(_FIRST + "exec sleep 1000", _signal(signal.SIGHUP)),
    "KILL to the launcher": _Fault(_FIRST + "exec sleep 1000", _signal(signal.SIGKILL)),
    "KILL to the launcher; ranks have daemons": _Fault(
        _FIRST + _DAEMON + "exec sleep 1000", _signal(signal.SIGKILL)
    ),
    "KILL to its helper process": _Fault(_FIRST + _DAEMON + "sleep 1000; true", _kill_helper),
    "--timeout": _Fault(_FIRST + "exec sleep 1000", only_ours=("--timeout", "2")),
    "a program that is not there": _Fault(""),
}


def faults(bench: Bench) -> list[Grid]:
    """All faults, with this launcher and all others."""
    cells: dict[str, dict[str, str]] = {}
    for name, fault in _FAULTS.items():
        argv = ["bash", "-c", fault.script] if fault.script else ["/not/there"]
        commands = {OURS: [*bench.ours, "-n", str(_RANKS), *fault.only_ours, *argv]}
        if not fault.only_ours:
            for peer in bench.peers:
                commands[peer.name] = peer.command(_RANKS, argv, bench.folder)
        cells[name] = {}
        for who, command in commands.items():
            cells[name][who] = _fate(bench, fault, command)
            print(f"bench: {name}: {who}: {cells[name][who]}", file=sys.stderr, flush=True)
    limit_s = _QUICK_S if bench.quick else _LIMIT_S
    title = f"until the last process is gone, or **left** after {limit_s:g} s; exit status"
    return [Grid(title, cells)]


def _fate(bench: Bench, fault: _Fault, command: Sequence[str]) -> str:
    marked = Marked()
    folder = bench.folder / f"fault-{time.monotonic_ns()}"
    folder.mkdir()
    env = {**marked.environ, "BENCH_FOLDER": str(folder)}
    null = subprocess.DEVNULL
    with subprocess.Popen(command, env=env, stdin=null, stdout=null, stderr=null) as job:
        try:
            if fault.script and not _all_run(folder, job):
                return "did not start"
            fault.then(job.pid, marked)
            (folder / "go").touch()
            return _what_follows(job, marked, _QUICK_S if bench.quick else _LIMIT_S)
        except _NotThere:
            return "has none"
        finally:
            marked.kill()


def _all_run(folder: Path, job: "subprocess.Popen[bytes]") -> bool:
    ready, deadline = folder / "ready", time.monotonic() + _START_S
    while time.monotonic() < deadline and job.poll() is None:
        if ready.exists() and len(ready.read_text().split()) == _RANKS:
            time.sleep(0.5)  # what the script starts after that
            return True
        time.sleep(0.01)
    return False


def _what_follows(job: "subprocess.Popen[bytes]", marked: Marked, limit_s: float) -> str:
    seconds = marked.silent_after(limit_s)
    if seconds is not None:
        return f"{seconds:.2f} s; {_status(job.wait())}"
    left = len([pid for pid in marked.pids() if pid != job.pid])
    code = job.poll()
    status = "runs on" if code is None else _status(code)
    return f"**{left}**; {status}"


def _status(code: int) -> str:
    """As a shell shows it."""
    return str(code if code >= 0 else 128 - code)

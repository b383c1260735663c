"""Programs that a host compiles once, against launchers whose every rank compiles them."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks import rank_programs
from benchmarks.bench import Bench, cpu_s, environ, timed
from benchmarks.measure import OURS, Measure
from benchmarks.peers import LOOP
from benchmarks.saves import saves

_LAYERS, _FEW_LAYERS = 60, 3
# With more ranks only the shell loop is measured: all others compile as often.
_MOST_WITH_ALL = 4
_OFF = f"{OURS} --compile-once off"
_WARM = f"{OURS} --compile-cache"


@dataclass(frozen=True)
class _Job:
    """A job to measure.

    Args:
        title: what its ranks do.
        program: the file.
        ranks: how many.
        rounds: how often each way is measured.

    """

    title: str
    program: str
    ranks: int
    rounds: int


def compiling(bench: Bench) -> list[Measure]:
    """Measure a big program, fifty small ones and the guide's toy: cold and warm, wall and CPU."""
    found: list[Measure] = []
    for job in _jobs(bench):
        print(f"bench: {job.title} on {job.ranks} ranks ...", file=sys.stderr, flush=True)
        found += _measured(bench, job)
    return [*found, *saves(bench)]


def _jobs(bench: Bench) -> list[_Job]:
    big = rank_programs.big(bench, _FEW_LAYERS if bench.quick else _LAYERS)
    small, toy = rank_programs.small(bench), rank_programs.toy(bench)
    sizes = [(4, 3)] if bench.quick else [(4, 3), (8, 2), (32, 1)]
    return [
        *(_Job("one big program", big, ranks, rounds) for ranks, rounds in sizes),
        *(_Job("fifty small programs", small, ranks, rounds) for ranks, rounds in sizes),
        _Job("the guide's toy program", toy, 4, 5),
    ]


def _measured(bench: Bench, job: _Job) -> list[Measure]:
    """Return the times of a job, cold and warm, and its processor times."""
    cpu: dict[str, list[float]] = {}

    def run(way: str, command: Callable[[], list[str]]) -> float:
        before = cpu_s()
        seconds = _run(bench, command(), job.ranks)
        cpu.setdefault(way, []).append(cpu_s() - before)
        return seconds

    commands = _commands(bench, job)
    _run(bench, commands[_WARM](), job.ranks)  # fills the folder
    ways = {way: partial(run, way, command) for way, command in commands.items()}
    wall = bench.in_turn(job.rounds, ways)
    title = f"{job.title} on {job.ranks} ranks"
    return [
        *_cold_and_warm(title, wall),
        *_cold_and_warm(f"{title}: processor time", {way: cpu[way] for way in wall}),
    ]


def _cold_and_warm(title: str, seconds: Mapping[str, list[float]]) -> list[Measure]:
    """Compare both with the same runs of the others."""
    others = {way: values for way, values in seconds.items() if way not in (OURS, _WARM)}
    return [
        Measure(f"{title}, {state}", "s", {OURS: seconds[way], **others})
        for state, way in (("cold", OURS), ("warm", _WARM))
        if way in seconds
    ]


def _run(bench: Bench, command: list[str], ranks: int) -> float:
    with tempfile.TemporaryFile("w+", dir=bench.folder) as output:
        env = environ(JAX_PLATFORMS="cpu")
        seconds = timed(command, stdout=output, stderr=subprocess.DEVNULL, env=env)
        output.seek(0)
        rank_programs.check_results(output.read(), ranks)
    return seconds


def _commands(bench: Bench, job: _Job) -> dict[str, Callable[[], list[str]]]:
    """Return what makes the command line of each way."""
    folder = tempfile.mkdtemp(dir=bench.folder)
    options = {OURS: [], _WARM: ["--compile-cache", folder], _OFF: ["--compile-once", "off"]}

    def ours(more: list[str]) -> list[str]:
        return [*bench.ours, *more, "-n", str(job.ranks), job.program]

    def theirs(command: Callable[..., list[str]]) -> list[str]:
        argv = rank_programs.by_hand(bench, job.program, job.ranks)
        return command(job.ranks, argv, bench.folder)

    commands: dict[str, Callable[[], list[str]]] = {
        **{way: partial(ours, more) for way, more in options.items()},
        **{peer.name: partial(theirs, peer.command) for peer in bench.peers},
    }
    if job.ranks > _MOST_WITH_ALL:
        return {way: commands[way] for way in (OURS, _WARM, LOOP)}
    return commands

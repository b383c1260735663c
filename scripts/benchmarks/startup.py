"""Start and end of ranks that do nothing: what launchers themselves cost."""

import subprocess
from functools import partial

from benchmarks.bench import PYTHON, Bench, timed
from benchmarks.measure import Measure
from benchmarks.peers import LOOP, PARALLEL

# Each number of ranks, and in how many rounds.
_SIZES = ((4, 21), (64, 9), (512, 3))
_PROGRAM = "/bin/true"


def startup(bench: Bench) -> list[Measure]:
    """4, 64 and 512 x /bin/true; beyond 4 without the peers that get slow."""
    found = []
    for count, rounds in _SIZES:
        ways = bench.of_each(partial(_ours, count))
        for peer in bench.peers:
            if count == 4 or peer.name.startswith((LOOP, PARALLEL)):
                ways[peer.name] = partial(_ms, peer.command(count, [_PROGRAM], bench.folder))
        if count == 4:
            ways["python -c pass"] = partial(_ms, [PYTHON, "-c", "pass"])
            ways["import click"] = partial(_ms, [PYTHON, "-c", "import click"])
        title = f"start and end of {count} ranks of `{_PROGRAM}`"
        found.append(Measure(title, "ms", bench.in_turn(rounds, ways)))
    return found


def _ours(count: int, launcher: list[str]) -> float:
    return _ms([*launcher, "-n", str(count), _PROGRAM])


def _ms(command: list[str]) -> float:
    return timed(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) * 1e3

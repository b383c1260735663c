"""One rank on its host, as is usual with GPUs: how much later it is ready than by hand."""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.bench import PYTHON, Bench, environ
from benchmarks.measure import OURS, Grid, Spread
from benchmarks.processes import free_port

_ROUNDS = 15
_BY_HAND = "by hand"
_STEPS = ("the program begins", "`import jax`", "`initialize()`", "`jax.devices()`", "the end")
_PROGRAM = """
import sys, time
times = [time.monotonic()]
import jax
times.append(time.monotonic())
jax.distributed.initialize(*sys.argv[1:2], *map(int, sys.argv[2:]))
times.append(time.monotonic())
jax.devices()
print([*times, time.monotonic()])
"""
# Another way to this machine, as ssh is to others: an agent that is streamed.
_SHELL = "env H={host} sh -c {command}"


def one_rank(bench: Bench) -> list[Grid]:
    """Compare the steps of a start by hand with those of one rank, here and on another host."""
    program = bench.write("one.py", _PROGRAM)

    def by_hand() -> list[float]:
        return _run([PYTHON, program, f"localhost:{free_port()}", "1", "0"])

    ways: dict[str, Callable[[], list[float]]] = {_BY_HAND: by_hand}
    for name, launcher in bench.launchers.items():
        ways[name] = partial(_run, [*launcher, "-n", "1", program])
    streamed = [*bench.ours, "--via", _SHELL, "--hosts", "node1", "--python", PYTHON, program]
    ways[f"{OURS}, host by `--via`"] = partial(_run, streamed)
    return [compare(bench.in_turn(_ROUNDS, ways))]


def _run(command: Sequence[str]) -> list[float]:
    """Return the seconds from the command to each step."""
    began = time.monotonic()
    env = environ(JAX_PLATFORMS="cpu")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    ended = time.monotonic()
    times = json.loads(done.stdout[done.stdout.rindex("[") :])
    return [at - began for at in (*times, ended)]


def compare(seen: dict[str, list[list[float]]]) -> Grid:
    """Return each step's median time by hand, and how much later it is in the other ways."""
    cells: dict[str, dict[str, str]] = {}
    for number, step in enumerate(_STEPS):
        times = {way: [run[number] for run in runs] for way, runs in seen.items()}
        hand = times.pop(_BY_HAND)
        row = {_BY_HAND: f"{statistics.median(hand):.2f} s"}
        for way, found in times.items():
            later = Spread.of([(a - b) * 1e3 for a, b in zip(found, hand, strict=False)])
            row[way] = f"{later.median:+.0f} ms ({later.low:+.0f} to {later.high:+.0f})"
        cells[step] = row
    return Grid("one JAX rank, from the command to", cells)

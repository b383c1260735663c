"""Measure the cost of recording programs, against jobs that record none."""

import os
import subprocess
from functools import partial
from itertools import pairwise

from benchmarks.bench import PYTHON, ROOT, Bench, Way, cpu_s
from benchmarks.measure import OURS, Measure

_STEPS = """
import sys, time
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
step = jax.jit(lambda x: jnp.sin(x) + 1)
x = multihost_utils.host_local_array_to_global_array(
    jnp.ones((2, 2)), jax.make_mesh((jax.device_count(),), ("a",)), jax.sharding.PartitionSpec("a"))
step(x).block_until_ready()
steps, best = int(sys.argv[1]), 1.0
for _ in range(10 if steps else 0):
    began = time.perf_counter()
    for _ in range(steps):
        x = step(x)
    x.block_until_ready()
    best = min(best, (time.perf_counter() - began) / steps)
if jax.process_index() == 0:
    print("us", best * 1e6)
"""
_PROGRAMS = """
import os, sys, time
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
x = multihost_utils.host_local_array_to_global_array(
    jnp.ones((2, 2)), jax.make_mesh((jax.device_count(),), ("a",)), jax.sharding.PartitionSpec("a"))
def used():  # this thread, and for all ranks the agent, its guardian and the launcher
    at, total = os.getpid(), time.thread_time()
    for _ in range(3 if jax.process_index() == 0 else 0):
        at = int(open(f"/proc/{at}/stat").read().rpartition(")")[2].split()[1])
        total += int(open(f"/proc/{at}/schedstat").read().split()[0]) / 1e9
    return total
jitted = [jax.jit(lambda x, n=n: x * n - x.sum()) for n in range(int(sys.argv[1]))]
programs = [each.lower(x).compile() for each in jitted]
multihost_utils.sync_global_devices("compiled")
began, before = time.perf_counter(), used()
for program in programs:
    program(x)
print("cpu", (used() - before) * 1e6)
multihost_utils.sync_global_devices("run")
if jax.process_index() == 0:
    print("us", (time.perf_counter() - began) * 1e6)
"""
# The recorder is switched off and on in turn: the machine's noise is the same for both.
_IN_TURN = """
import sys, time
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("a",))
def put(shape, *axes):
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.make_array_from_callback(shape, sharding, lambda at: jnp.ones(shape)[at] / 64)
add, x = jax.jit(lambda x: x + 1), put((2, 2), "a")
@jax.jit
def update(weights, x, y):
    def loss(weights):
        h = x
        for w in weights:
            h = jnp.tanh(h @ w)
        return ((h - y) ** 2).mean()
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))
weights, batch = [put((64, 64)), put((64, 64))], put((64, 64), "a")
calls, rounds = map(int, sys.argv[1:])
from jax._src import api
state = api._post_hook_state
def measure(calls):
    global weights
    began = CLOCK()
    for _ in range(calls):
        weights = RUN
    used = CLOCK() - began
    jax.block_until_ready(weights)
    return used / calls * 1e6
measure(1)
best = {}
for number in range(rounds):
    on = number % 2
    (state if on else state._real).set_global(None)
    measure(5)
    best[on] = min(best.get(on, 1e9), measure(calls))
if jax.process_index() == 0:
    print("off", best[0], "on", best[1])
"""
_COMPILED = 300
_WITHOUT = "without the record"


def spmd(bench: Bench) -> list[Measure]:
    """Processor time and a step of two ranks, and first runs of many programs."""
    program = bench.write("steps.py", _STEPS)

    def run(record: str, steps: int) -> list[str]:
        command = [PYTHON, "-m", "mcjax_launch", "-n", "2", "-d", "1", program, str(steps)]
        return _read_words(command, record)

    def cpu(record: str) -> float:
        before = cpu_s()
        run(record, 0)
        return (cpu_s() - before) * 1e3

    def step(record: str) -> float:
        words = run(record, 4000)
        return float(words[words.index("us") + 1])

    found = []
    for title, measure, unit in (
        ("processor time of 2 ranks that run two small programs", cpu, "ms"),
        ("one small step of 2 ranks", step, "us"),
    ):
        ways: dict[str, Way] = {OURS: partial(measure, ""), _WITHOUT: partial(measure, "0")}
        found.append(Measure(title, unit, bench.in_turn(15, ways)))
    title = "one call of a jitted function, 2 ranks"
    found.append(_in_turn(bench, title, "add(x)", "time.thread_time", 100, 600))
    title, update = "one small training step of 2 ranks", "update(weights, batch, batch)"
    found.append(_in_turn(bench, title, update, "time.perf_counter", 50, 200))
    return [*found, *_first_runs(bench)]


def _read_words(command: list[str], record: str) -> list[str]:
    """Return the words that a job prints, with this value of the variable for the record."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MCJAX_RECORD": record}
    done = subprocess.run(command, check=True, env=env, capture_output=True)
    return done.stdout.decode().split()


def _in_turn(bench: Bench, title: str, call: str, clock: str, calls: int, rounds: int) -> Measure:
    """Measure a call with and without the recorder."""
    text = _IN_TURN.replace("RUN", call).replace("CLOCK", clock)
    program = bench.write("in_turn.py", text)
    found: dict[str, list[float]] = {OURS: [], "by hand": []}
    for _ in range(5):
        command = [*bench.ours, "-n", "2", "-d", "1", program, str(calls), str(rounds)]
        words = subprocess.run(command, check=True, capture_output=True).stdout.decode().split()
        found[OURS].append(float(words[words.index("on") + 1]))
        found["by hand"].append(float(words[words.index("off") + 1]))
    return Measure(title, "us", found)


def _first_runs(bench: Bench) -> list[Measure]:
    """Measure what the record costs at the first runs of programs, whose code is kept then."""
    program = bench.write("programs.py", _PROGRAMS)
    used: dict[str, list[float]] = {OURS: [], _WITHOUT: []}

    def first_runs(way: str, record: str) -> float:
        command = [*bench.ours, "-n", "4", "-d", "1", program, str(_COMPILED)]
        words = _read_words(command, record)
        cpu = [float(value) for name, value in pairwise(words) if name == "cpu"]
        used[way].append(sum(cpu) / 1e3)
        return float(words[words.index("us") + 1]) / 1e3

    ways: dict[str, Way] = {
        OURS: partial(first_runs, OURS, ""),
        _WITHOUT: partial(first_runs, _WITHOUT, "0"),
    }
    title = f"first runs of {_COMPILED} compiled programs on 4 ranks"
    measured = Measure(title, "ms", bench.in_turn(5, ways))
    return [measured, Measure("processor time of that, of ranks, agent and launcher", "ms", used)]

"""Start and end of JAX ranks, against the loop of JAX's guide."""

import subprocess
from collections.abc import Callable

from benchmarks.bench import PYTHON, Bench, Way, environ, timed
from benchmarks.idle import while_idle
from benchmarks.measure import OURS, Measure
from benchmarks.peers import LOOP
from benchmarks.processes import free_port, pss_mb

_DEVICES = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
jax.devices()
"""
# As in the guide.
_TOY = """
import sys
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
mesh = jax.make_mesh((jax.device_count(),), ("i",))
data = np.arange(4.0 * jax.device_count())
x = jax.make_array_from_callback(data.shape, NamedSharding(mesh, P("i")), lambda i: data[i])
print(jnp.sum(x))
"""
_WITHOUT_JAX = "print('a program without the library')"
_WAITS = "import jax, time; print('ready', flush=True); time.sleep(1000)"
_NONE = "--preload none"
_COORDINATES = ["{coordinator}", "{num_processes}", "{process_id}"]
_QUIET = subprocess.DEVNULL


def jax(bench: Bench) -> list[Measure]:
    """Ranks that reach jax.devices(), the guide's toy, what has nothing to gain; memory."""
    devices, toy = bench.write("devices.py", _DEVICES), bench.write("guide.py", _TOY)
    to_devices = "to `jax.devices()` and out"
    rows = [
        (f"4 JAX ranks {to_devices}", devices, 4, 7),
        (f"8 JAX ranks {to_devices}", devices, 8, 7),
        (f"32 JAX ranks {to_devices}", devices, 32, 3),
        ("the guide's toy program on 4 ranks", toy, 4, 7),
        (f"1 JAX rank {to_devices}", devices, 1, 7),
        ("4 ranks of a Python program without jax", bench.write("plain.py", _WITHOUT_JAX), 4, 15),
    ]
    found = [
        Measure(title, "s", bench.in_turn(rounds, _ways(bench, program, count)))
        for title, program, count, rounds in rows
    ]
    return [*found, _memory(bench)]


def _ways(bench: Bench, program: str, count: int) -> dict[str, Way]:
    def run(ours: list[str]) -> float:
        command = [*ours, "-n", str(count), program, *_COORDINATES]
        return timed(command, stdout=_QUIET, stderr=_QUIET, env=environ(JAX_PLATFORMS="cpu"))

    def loop() -> float:
        each = f"for i in $(seq 0 {count - 1}); do {PYTHON} {program} $A {count} $i & done; wait"
        env = environ(A=f"localhost:{free_port()}", JAX_PLATFORMS="cpu")
        return timed(["bash", "-c", each], stdout=_QUIET, stderr=_QUIET, env=env)

    return {**_default_and_none(bench, run), LOOP: loop}


def _default_and_none(bench: Bench, run: Callable[[list[str]], float]) -> dict[str, Way]:
    """Nothing but the default, and each rank with its own import."""
    ways = bench.of_each(run)
    if bench.knows("--preload"):
        ways[f"{OURS} {_NONE}"] = lambda: run([*bench.ours, *_NONE.split()])
    return ways


def _memory(bench: Bench) -> Measure:
    program = bench.write("waits.py", _WAITS)

    def whole(ours: list[str]) -> float:
        command = [*ours, "-n", "8", program]
        return while_idle(command, 8, lambda _, marked: sum(map(pss_mb, marked.pids())))

    title = "8 idle ranks that have imported jax, all processes together (PSS)"
    return Measure(title, "MB", bench.in_turn(3, _default_and_none(bench, whole)))

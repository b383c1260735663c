"""Start and end of JAX ranks, against the loop of JAX's guide."""

import subprocess

from benchmarks.bench import PYTHON, Bench, Way, environ, timed
from benchmarks.measure import OURS, Measure
from benchmarks.peers import LOOP
from benchmarks.processes import free_port

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
_COORDINATES = ["{coordinator}", "{num_processes}", "{process_id}"]
_QUIET = subprocess.DEVNULL


def jax(bench: Bench) -> list[Measure]:
    """Ranks that reach jax.devices(), and a toy program; also with --preload none."""
    devices, toy = bench.write("devices.py", _DEVICES), bench.write("guide.py", _TOY)
    preload = bench.knows("--preload")
    found = []
    for count, rounds in ((4, 7), (8, 7), *(((32, 3),) if preload else ())):
        title = f"{count} JAX ranks to `jax.devices()` and out"
        found.append(Measure(title, "s", bench.in_turn(rounds, _ways(bench, devices, count))))
    title = "the guide's toy program on 4 ranks"
    found.append(Measure(title, "s", bench.in_turn(7, _ways(bench, toy, 4))))
    return found


def _ways(bench: Bench, program: str, count: int) -> dict[str, Way]:
    def run(*ours: str) -> float:
        command = [*ours, "-n", str(count), program, *_COORDINATES]
        return timed(command, stdout=_QUIET, stderr=_QUIET, env=environ(JAX_PLATFORMS="cpu"))

    def loop() -> float:
        each = f"for i in $(seq 0 {count - 1}); do {PYTHON} {program} $A {count} $i & done; wait"
        env = environ(A=f"localhost:{free_port()}", JAX_PLATFORMS="cpu")
        return timed(["bash", "-c", each], stdout=_QUIET, stderr=_QUIET, env=env)

    ways: dict[str, Way] = bench.of_each(lambda ours: run(*ours))
    if bench.knows("--preload"):
        ways[f"{OURS} --preload none"] = lambda: run(*bench.ours, "--preload", "none")
    ways[LOOP] = loop
    return ways

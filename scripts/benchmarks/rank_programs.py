"""Programs of JAX ranks that any launcher can start, and that print `result` and a number."""

import re
import tempfile

from benchmarks.bench import PYTHON, Bench
from benchmarks.processes import free_port

# Launchers number their processes in different ways, so that each takes the first free number.
_JOIN = """
import os, sys
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np

def first_free(folder):
    for number in range(int(sys.argv[2])):
        try:
            os.mkdir(f"{folder}/{number}")
            return number
        except FileExistsError:
            pass

def join():
    if sys.argv[1:]:
        jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), first_free(sys.argv[3]))
    else:
        jax.distributed.initialize()
    return jax.make_mesh((jax.device_count(),), ("i",))

def show(number):  # in one piece, also where Python does not buffer
    sys.stdout.write(f"result {float(number)}\\n")
    sys.stdout.flush()
"""
# One program that takes long to compile: the gradient of many unrolled layers.
_BIG = """
def loss(layers, x):
    for number, layer in enumerate(layers):
        x = jnp.tanh(x @ layer) + jnp.sin(x * number)
        x = jax.nn.softmax(x / (1 + jnp.abs(x).sum()))
    return (x ** 2).sum()

everywhere = NamedSharding(join(), P())
layers = [np.full((32, 32), number / 100, np.float32) for number in range(LAYERS)]
layers, x = jax.device_put((layers, np.ones((8, 32), np.float32)), everywhere)
_, gradient = jax.jit(jax.value_and_grad(loss))(layers, x)
show(gradient[0].sum())
"""
_SMALL = """
x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(join(), P()))
for number in range(50):
    x = jax.jit(lambda x: jnp.sin(x) + number)(x)
show(x[0, 0])
"""
# As the guide's.
_TOY = """
jax.config.update("jax_num_cpu_devices", 2)
mesh = join()
data = np.arange(4.0 * jax.device_count())
x = jax.make_array_from_callback(data.shape, NamedSharding(mesh, P("i")), lambda i: data[i])
show(jnp.sum(x))
"""


def big(bench: Bench, layers: int) -> str:
    """Write the program that takes long to compile; return its path."""
    return bench.write("big.py", _JOIN + _BIG.replace("LAYERS", str(layers)))


def small(bench: Bench) -> str:
    """Write fifty programs that are quick to compile, in one file; return its path."""
    return bench.write("small.py", _JOIN + _SMALL)


def toy(bench: Bench) -> str:
    """Write the guide's toy program; return its path."""
    return bench.write("toy.py", _JOIN + _TOY)


def by_hand(bench: Bench, program: str, count: int) -> list[str]:
    """Return the command line of each rank where the launcher is another's, for one run."""
    numbers = tempfile.mkdtemp(dir=bench.folder)
    return [PYTHON, program, f"localhost:{free_port()}", str(count), numbers]


def check_results(output: str, count: int) -> None:
    """Check what the ranks of a program have printed; not every launcher reports a failure.

    Raises:
        ValueError: a rank has printed no result, or another one than the others.

    """
    results = re.findall(r"result (\S+)", output)
    if len(results) != count or len(set(results)) != 1:
        raise ValueError(f"{count} ranks printed the results {results}")

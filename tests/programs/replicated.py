"""Make parameters that claim to be replicated, from one seed or (`seeds`) from each rank's own."""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
me, count = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(me if sys.argv[1:] == ["seeds"] else 0)
made = {"w": rng.normal(size=(4, 4)).astype(np.float32), "b": np.zeros(4, np.float32)}


def spread(array: np.ndarray, *axes: str) -> jax.Array:
    sharding = NamedSharding(mesh, P(*axes))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


params = {name: spread(array) for name, array in made.items()}
x = spread(np.arange(4.0 * mesh.size).astype(np.float32).reshape(-1, 4) + me, "data")


@jax.jit
def step(params: dict[str, jax.Array], key: jax.Array, x: jax.Array) -> jax.Array:
    noise = jax.random.key_data(key).sum()
    return ((x @ params["w"] + params["b"] + noise) ** 2).mean()


seed = me if sys.argv[1:] == ["keys"] else 0
key = jax.random.wrap_key_data(np.array([0, seed], np.uint32))  # which compiles nothing
print("loss", step(params, key, x))  # at: step

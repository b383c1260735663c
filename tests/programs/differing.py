"""Run a program on rank 1 that differs from the other ranks' in what argv says."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
way = sys.argv[1]
odd = jax.process_index() == 1
devices = np.array(jax.devices())
if odd and way == "devices":
    devices = devices[::-1]
mesh = Mesh(devices, ("all",))


def spread(spec: P, *shape: int) -> jax.Array:
    whole = np.ones(shape, np.float32)
    return jax.make_array_from_callback(
        shape, NamedSharding(mesh, spec), lambda index: whole[index]
    )


def loss(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
    h = jnp.tanh(batch @ params["w"])
    if way == "operation" and odd:
        return jnp.max(h)  # at: operation
    if way == "long constant":
        h = h + np.arange(64.0).reshape(8, 8) * (3 if odd else 1)
    return jnp.sum(h)  # at: sum


params = {"w": spread(P(None, "all") if odd and way == "sharding" else P(), 8, 8)}
batch = spread(P("all"), 16 if odd and way == "shape" else 8, 8)
jitted = jax.jit(loss, keep_unused=True)
print("result", jitted(params, batch))  # at: call

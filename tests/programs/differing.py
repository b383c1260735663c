"""Run a program on rank 2 that differs from the other ranks' in what argv says."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
way = sys.argv[1]
odd = jax.process_index() == 2
devices = np.array(jax.devices())
if odd and way == "devices":
    devices = devices[::-1]
mesh = Mesh(devices, ("all",))


def spread(spec: P, *shape: int, dtype: type = np.float32) -> jax.Array:
    whole = np.ones(shape, dtype)
    return jax.make_array_from_callback(
        shape, NamedSharding(mesh, spec), lambda index: whole[index]
    )


def loss(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
    h = jnp.tanh(batch @ params["w"])
    if way == "operation" and odd:
        return jnp.max(h)  # at: operation
    if way == "attribute" and odd:
        h = h.reshape(4, 16)  # at: attribute
    elif way == "attribute":
        h = h.reshape(16, 4)  # at: usual shape
    elif way == "long constant":
        h = h + np.arange(64.0).reshape(8, 8) * (3 if odd else 1)
    return jnp.sum(h)  # at: sum


params = {"w": spread(P(None, "all") if odd and way == "sharding" else P(), 8, 8)}
if odd and way == "arguments":
    params["b"] = spread(P(), 8)
batch = spread(P("all"), 16 if odd and way == "shape" else 8, 8)
if odd and way == "dtype":
    batch = spread(P("all"), 8, 8, dtype=np.bool_)
jitted = jax.jit(loss, keep_unused=True)
print("result", jitted(params, batch))  # at: call

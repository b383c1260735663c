"""Make the same mistake in all ranks; argv says which."""

import sys

import jax
import jax.numpy as jnp

way = sys.argv[1]
if way == "touched":
    jax.devices()
jax.distributed.initialize(*(sys.argv[2:3] if way == "port" else ()))


@jax.jit
def step(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b


if way == "shapes":
    step(jnp.ones((3, 4)), jnp.ones((3, 4)))
if way == "memory":
    step(jnp.ones((1 << 24, 1)), jnp.ones((1, 1 << 26))).block_until_ready()

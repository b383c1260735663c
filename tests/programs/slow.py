"""Be silent for argv[2] seconds or longer, in one step or one compilation, without an error."""

import sys
import time

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

seconds = float(sys.argv[2])
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
x = jnp.ones((400, 400))
if sys.argv[1] == "step":
    step = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, x: jnp.tanh(x @ x.T), x))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        step(x).block_until_ready()
if sys.argv[1] == "compile":

    def long(x: jax.Array) -> jax.Array:
        for n in range(int(40 * seconds)):
            x = jnp.sin(x * n).at[n % 400].set(jnp.cos(x[n % 7]))
        return x

    jax.jit(long)(x).block_until_ready()
print("done")

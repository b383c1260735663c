"""jax-ml/jax 38503 without a GPU: at step 5 one rank sleeps, and the others' processors spin.

The launcher is told that these programs run on a GPU. Once it has started the job again all is well.
"""

import os
import sys
import threading
import time

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

STALL_STEP, STALL_RANK = 5, 1


def pretend_to_be_on_a_gpu() -> None:
    hook = sys.modules["_mcjax_launch.hook.mcjax_hook.compilation"]
    real = hook.Compiling  # type: ignore[attr-defined]
    hook.Compiling = lambda name, where, platform: real(name, where, "gpu")  # type: ignore[attr-defined]


def spin() -> None:
    """As NCCL does while it waits; a little, for the machine may be small."""
    while True:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        time.sleep(0.1)


pretend_to_be_on_a_gpu()
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("i",))
ones = jnp.ones(jax.device_count())
x = jax.make_array_from_callback(ones.shape, NamedSharding(mesh, P("i")), lambda index: ones[index])
all_reduce = jax.jit(lambda x: x / jnp.sum(x))
first = os.environ["MCJAX_RESTART"] == "0"
if first and jax.process_index() != STALL_RANK:
    threading.Thread(target=spin, daemon=True).start()
for step in range(10):
    if first and step == STALL_STEP and jax.process_index() == STALL_RANK:
        time.sleep(1e6)
    x = all_reduce(x).block_until_ready()
    print(f"step {step} done", flush=True)

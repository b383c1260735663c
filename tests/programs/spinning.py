"""Sleep in rank 1 at step 5 while the other ranks spin: jax-ml/jax 38503 without a GPU.

They spin in a call of C that does not return, as NCCL's set-up with usleep(1). The launcher is told
that these programs run on a GPU. Once it has started the job again all is well.
"""

import ctypes
import os
import sys
import time
from collections import deque
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

STALL_STEP, STALL_RANK = 5, 1
# What stands for a call into jaxlib: no Python runs meanwhile, and the main thread uses a processor.
CALL = "def wait():\n    deque(map(usleep, repeat(1)), 0)\n"


def pretend_to_be_on_a_gpu() -> None:
    hook = sys.modules["_mcjax_launch.hook.compilation"]
    real = hook.Compiling  # type: ignore[attr-defined]
    hook.Compiling = lambda name, where, platform: real(name, where, "gpu")  # type: ignore[attr-defined]


def call_into_jaxlib() -> Any:
    names = {"usleep": ctypes.CDLL(None).usleep, "deque": deque, "repeat": repeat}
    folder = os.path.dirname(os.path.dirname(jax.__file__))
    exec(compile(CALL, f"{folder}/jaxlib/nccl.py", "exec"), names)
    return names["wait"]


pretend_to_be_on_a_gpu()
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("i",))
ones = jnp.ones(jax.device_count())
x = jax.make_array_from_callback(ones.shape, NamedSharding(mesh, P("i")), lambda index: ones[index])
all_reduce = jax.jit(lambda x: x / jnp.sum(x))
first = os.environ["MCJAX_RESTART"] == "0"
wait = call_into_jaxlib()
for step in range(10):
    if first and step == STALL_STEP:
        if jax.process_index() == STALL_RANK:
            time.sleep(1e6)
        wait()
    x = all_reduce(x).block_until_ready()
    print(f"step {step} done", flush=True)

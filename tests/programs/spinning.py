"""Sleep in one rank at step 5 while other ranks spin in argv[1]: jax-ml/jax 38503 without a GPU.

That is "thread", another thread than the main one; "main", in a call of C that does not return, as
NCCL's set-up with usleep(1); or "steps", in which nobody hangs, and all ranks take 40 steps of half
a second in silence, each in such a call. The launcher is told that these programs run on a GPU.
Once it has started the job again all is well.
"""

import ctypes
import os
import sys
import threading
import time
from collections import deque
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

STALL_STEP, STALL_RANK = 5, 1
SILENT_STEPS = 40
# What stands for a call into jaxlib: no Python runs meanwhile, and the main thread uses a processor.
CALL = "def wait(*times):\n    deque(map(usleep, repeat(1, *times)), 0)\n"
# Of usleep(1), which takes longer than it says.
SLEEPS = 8000

way = sys.argv[1]


def pretend_to_be_on_a_gpu() -> None:
    hook = sys.modules["_mcjax_launch.kernel.hook.compilation"]
    real = hook.Compiling  # type: ignore[attr-defined]
    hook.Compiling = lambda name, where, platform: real(name, where, "gpu")  # type: ignore[attr-defined]


def spin() -> None:
    """As NCCL does while it waits; a little, for the machine may be small."""
    while True:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        time.sleep(0.1)


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
if way == "steps":
    for _ in range(SILENT_STEPS):
        x = all_reduce(x)
        wait(SLEEPS)
    sys.exit()
if first and way == "thread" and jax.process_index() != STALL_RANK:
    threading.Thread(target=spin, daemon=True).start()
for step in range(10):
    if first and step == STALL_STEP:
        if jax.process_index() == STALL_RANK:
            time.sleep(1e6)
        elif way == "main":
            wait()
    x = all_reduce(x).block_until_ready()
    print(f"step {step} done", flush=True)

"""Take ten steps, in which one rank does what argv[1] says; scripts/gpu-check runs it.

In each step they meet as argv[2] says: in a "sum" over all devices, for which each needs a GPU of its
own, or at a "barrier" after a computation of each, for which they may share one.
argv[3] is the platform that they have to be on, or "any".
"""

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
from jax._src.distributed import global_state
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

STEPS, STEP = 10, 5
FOR_EVER_MS = 10**6
#: So long a loop, or a compilation, takes at least: twice as long as a note on a hang waits there.
LONG_S = 20.0

way, meets, platform = sys.argv[1:]
if way == "hidden" and int(os.environ["JAX_PROCESS_ID"]) == 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
jax.distributed.initialize()
rank, first = jax.process_index(), os.environ["MCJAX_RESTART"] == "0"
odd = first and rank == jax.process_count() - 1


def load_batch() -> None:
    time.sleep(1e6)


def hold(share: float) -> list[jax.Array]:
    """Take this share of the memory that the rank may have, in pieces."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 16 << 20)
    held = [jnp.full(int(limit * share) // 64, i, jnp.float32) for i in range(16)]
    jax.block_until_ready(held)
    size = sum(piece.nbytes for piece in held)
    print(f"rank {rank}: holds {size >> 20} MiB of {limit >> 20} MiB", flush=True)
    return held


def loop_for_long(size: int = 256) -> None:
    """One program, which takes so long that a signal comes while the GPU computes."""
    matrix = jnp.eye(size) * 0.5
    loop = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, x: jnp.tanh(x @ x), x))
    turns, took = 1, 0.0
    while took < 0.5:
        turns *= 4
        began = time.monotonic()
        loop(matrix, turns).block_until_ready()
        took = time.monotonic() - began
    print(f"rank {rank}: begins its long loop", flush=True)
    began = time.monotonic()
    loop(matrix, int(turns * LONG_S / took)).block_until_ready()
    print(f"rank {rank}: its loop took {time.monotonic() - began:.0f} s", flush=True)


def compile_for_long() -> None:
    """Ever longer programs, until one has taken long to compile."""
    length, took = 100, 0.0
    while took < LONG_S:
        # Twice as long a program takes some four times as long.
        length = int(length * min(2, max(1.1, (1.3 * LONG_S / took) ** 0.5))) if took else length

        def long(x: jax.Array, length: int = length) -> jax.Array:
            for number in range(length):
                x = jnp.sin(x * number).at[number % 400].set(jnp.cos(x[number % 7]))
            return x

        traced = jax.jit(long).lower(jnp.ones((400, 400)))
        began = time.monotonic()
        traced.compile()
        took = time.monotonic() - began
    print(f"rank {rank}: compiled for {took:.0f} s", flush=True)


mesh = jax.make_mesh((jax.device_count(),), ("i",)) if meets == "sum" else None
all_reduce = jax.jit(lambda x: x / jnp.sum(x))


def begin() -> jax.Array:
    """What the steps work on, divided among all devices or of this rank alone."""
    if mesh is None:
        return jnp.ones((64, 64))
    ones = jnp.ones(jax.device_count())
    return jax.make_array_from_callback(
        ones.shape, NamedSharding(mesh, P("i")), lambda index: ones[index]
    )


def step(number: int, x: jax.Array) -> jax.Array:
    """Compute, and meet the others."""
    x = all_reduce(x).block_until_ready()
    if meets == "barrier":
        global_state.client.wait_at_barrier(f"step {number}", FOR_EVER_MS)
    return x


print(f"rank {rank}: {jax.local_devices()} of {jax.device_count()}", flush=True)
if platform not in ("any", jax.local_devices()[0].platform):
    raise RuntimeError(f"these are no devices of the platform {platform}")
held = hold(0.8) if way in ("memory", "restart", "lost") else []
if way == "too-much":
    more = [hold(0.4) for _ in range(4)]
if way == "memory":
    time.sleep(3)  # while the other ranks hold theirs
if way == "late" and odd:
    load_batch()
if way == "loop":
    loop_for_long()
if way == "epoch" and odd:  # products of these use the GPU's memory, too
    loop_for_long(8192 if jax.default_backend() == "gpu" else 256)
x = begin()
for number in range(STEPS):
    if number == STEP and odd:
        if way in ("killed", "restart", "lost"):
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "raises":
            raise ValueError("bad batch")
        if way == "ended":
            os._exit(0)
        if way == "stuck":
            load_batch()
        if way == "compiling":  # now: XLA gives the first collective on CPU devices 30 s
            compile_for_long()
    x = step(number, x)
if way == "differs":
    x = jax.jit(lambda x: x + jnp.sum(x) * (2.0 if odd else 1.0))(x).block_until_ready()
print(f"rank {rank}: done, {x.addressable_shards[0].data.ravel()[:1]}", flush=True)

"""What scripts/gpu-check runs: ranks that sum over all devices, and one that fails in argv[1]'s way."""

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

STEP = 5


def load_batch() -> None:
    time.sleep(1e6)


way = sys.argv[1]
jax.distributed.initialize()
rank, first = jax.process_index(), os.environ["MCJAX_RESTART"] == "0"
odd = rank == jax.process_count() - 1 and first
print(f"rank {rank}: {jax.local_devices()} of {jax.device_count()}", flush=True)
if way == "memory":  # more than half of what one rank may have, of its own
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 1 << 20)
    held = jnp.ones(int(limit * 0.6) // 4, jnp.float32).block_until_ready()
    print(f"rank {rank}: holds {held.nbytes >> 20} MiB of {limit >> 20} MiB", flush=True)
    time.sleep(3)  # while the other ranks hold theirs
    sys.exit()
if way == "late" and odd:
    load_batch()
mesh = jax.make_mesh((jax.device_count(),), ("i",))
ones = jnp.ones(jax.device_count())
sharding = NamedSharding(mesh, P("i"))
x = jax.make_array_from_callback(ones.shape, sharding, lambda index: ones[index])
all_reduce = jax.jit(lambda x: x / jnp.sum(x))
for step in range(2 * STEP):
    if step == STEP and odd:
        if way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "raises":
            raise ValueError("bad batch")
        if way == "ended":
            os._exit(0)
        if way == "stuck":
            load_batch()
    x = all_reduce(x).block_until_ready()
if way == "differs":
    x = jax.jit(lambda x: x + jnp.sum(x) * (2.0 if odd else 1.0))(x).block_until_ready()
print(f"rank {rank}: done, {x.addressable_shards[0].data}", flush=True)

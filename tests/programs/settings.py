"""Run programs with replicated outputs under settings of JAX that change what a program may do."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
rank, ranks = jax.process_index(), jax.process_count()
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
replicated, rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))


def put(values, sharding=replicated):
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def run(step, *args):
    for _ in range(4):  # the first one by JAX's Python code
        out = step(*args)
    return jax.block_until_ready(out)


@jax.jit
def step(w, x):
    return w * 0.9 + x.mean()


w, x = put(np.ones((8, 8), np.float32)), put(np.ones((12, 8), np.float32), rows)
with jax.transfer_guard("disallow"):
    run(step, w, x)
jax.config.update("jax_transfer_guard", "disallow")
run(jax.jit(lambda w, x: (w + x.max(), x.sum())), w, x)
jax.config.update("jax_transfer_guard", "allow")

with jax.disable_jit():
    run(lambda x: (x * 2).sum(), x)

with jax.debug_nans(True):
    run(step, w, x)
# NaNs and zeros of which each rank has others.
own = np.array([0xFFC00001, 0x80000000] if rank % 2 else [0x7FC00000, 0], np.uint32)
mine = np.tile(own.view(np.float32), (jax.local_device_count(), 1))
odd = jax.make_array_from_process_local_data(rows, mine)
run(jax.jit(lambda odd: (odd.sum(0), odd.max(0), odd.min(0), odd.prod(0))), odd)

jax.config.update("jax_enable_x64", True)
wide = put(np.arange(8.0)), put(np.arange(8.0) * 1j)
run(jax.jit(lambda a, b, x: (a * 2, b + x.sum(), a.astype(jnp.int64))), *wide, x)
jax.config.update("jax_enable_x64", False)
run(jax.jit(lambda a, x: a + x.sum().astype(a.dtype)), wide[0], x)

consume = jax.jit(lambda w, x: w + x.sum(), donate_argnums=0)
for _ in range(30):
    before = w
    w = consume(before, x)
    assert before.is_deleted()

# A key for each rank, and for each device: neither is replicated.
key = jax.random.fold_in(jax.random.key(0), rank)
keys = jax.make_array_from_process_local_data(
    rows, np.array([jax.random.key_data(key)] * jax.local_device_count())
)


@jax.jit
def drop(w, x, keys):
    kept = jax.vmap(lambda key: jax.random.bernoulli(jax.random.wrap_key_data(key)))(keys)
    return w * 0.9 + (kept * x[:, 0].sum()).sum()


run(drop, w, x, keys)
run(jax.jit(lambda w, x, key: w + (jax.random.uniform(key, x.shape) * x).sum() * 0), w, x, key)
run(jax.jit(lambda x: x * rank), jnp.ones(3))
print("the end")

"""Run the guide's toy program: a sum over an array that spans all processes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()

mesh = jax.make_mesh((jax.process_count(), jax.local_device_count()), ("process", "device"))
sharding = NamedSharding(mesh, PartitionSpec("process", "device"))
whole = np.arange(8 * jax.process_count()).reshape(jax.process_count(), 8)
spread = jax.device_put(whole, sharding)

for shard in spread.addressable_shards:
    print(f"device {shard.device} has {np.asarray(shard.data).ravel()}")
print(f"process {jax.process_index()} of {jax.process_count()}: sum {jnp.sum(jnp.sin(spread)):.6f}")

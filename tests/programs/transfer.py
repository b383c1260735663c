"""Run the guide's pipeline: jax.device_put from the first half of the devices to the second."""

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

jax.distributed.initialize()
half = jax.device_count() // 2
stages = [
    NamedSharding(
        jax.make_mesh((half,), ("a",), devices=devices, axis_types=(AxisType.Explicit,)),
        PartitionSpec("a"),
    )
    for devices in (jax.devices()[:half], jax.devices()[half:])
]
first = jax.device_put(np.arange(64).reshape(8, 8), stages[0])
second = jax.device_put(jax.jit(lambda x: x + 1)(first), stages[1])
result = jax.jit(lambda x: 2 * x)(second)
total = sum(int(np.asarray(shard.data).sum()) for shard in result.addressable_shards)
print(f"process {jax.process_index()} holds {total} of the result")

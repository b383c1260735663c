"""Print the slice of each device, and add up numbers on a hybrid mesh over all slices.

With "make_mesh" it then asks for a mesh that has no slices. "argument N" gives initialize() a
partition index, "variable N" sets the variable that JAX reads.
"""

import os
import sys

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

what, *values = sys.argv[1:] or ["nothing"]
more = {"partition_index": int(values[0])} if what == "argument" else {}
if what == "variable":
    os.environ["JAX_PARTITION_INDEX"] = values[0]
jax.distributed.initialize(**more)
devices = jax.devices()
slices = [device.slice_index for device in devices]
print("slices", *slices, flush=True)
count = len(set(slices))
mesh = Mesh(mesh_utils.create_hybrid_device_mesh((len(devices) // count,), (count,)), ("a",))
numbers = np.arange(len(devices))
spread = NamedSharding(mesh, P("a"))
array = jax.make_array_from_callback(numbers.shape, spread, lambda index: numbers[index])
total = jax.jit(lambda a: a.sum(), out_shardings=NamedSharding(mesh, P()))(array)
assert int(total) == numbers.sum()
print("the sum is right", flush=True)
if what == "make_mesh":
    jax.make_mesh((len(devices),), ("a",))

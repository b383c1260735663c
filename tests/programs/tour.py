"""Run the guide's tour: meshes, matmul over processes, a sub-mesh, three ways to build arrays.

jax.device_put between processes is in transfer.py: on CPU it may hang beside collectives.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
me, processes = jax.process_index(), jax.process_count()
local, devices = jax.local_device_count(), jax.device_count()


def same(spread: jax.Array, whole: np.ndarray) -> None:
    found = multihost_utils.process_allgather(spread, tiled=True)
    np.testing.assert_allclose(found, whole, rtol=1e-5)


# Meshes over all devices, and a matmul over them.
assert Mesh(np.array(jax.devices()), ("a",)).size == devices
mesh = jax.make_mesh((processes, local), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
left = (np.arange(devices * devices).reshape(devices, devices) / devices**2).astype(np.float32)
x = jax.device_put(left, NamedSharding(mesh, P("i", "j")))
y = jax.device_put(left.T, NamedSharding(mesh, P("j", None)))
same(jax.jit(jnp.matmul)(x, y), left @ left.T)
replicated = jax.device_put(x, NamedSharding(mesh, P()))
np.testing.assert_allclose(np.asarray(replicated), left, rtol=1e-6)
print(f"process {me}: matmul over {processes} x {local} devices is right")

# A mesh over half of the devices; the other processes hold nothing of it.
half = devices // 2
sub = jax.make_mesh((half,), ("a",), devices=jax.devices()[half:], axis_types=(AxisType.Explicit,))
part = jax.device_put(np.arange(8 * half).reshape(half, 8), NamedSharding(sub, P("a")))
total = jnp.sum(part)
mine = [device for device in sub.devices.flat if device.process_index == me]
assert len(part.addressable_shards) == len(mine)
if mine:
    assert int(total) == 4 * half * (8 * half - 1)
print(f"process {me}: {len(mine)} of its devices are in the sub-mesh")

# From each process's own part.
batch = np.full((2 * local, 3), float(me))
row = NamedSharding(jax.make_mesh((devices,), ("batch",)), P("batch"))
same(
    jax.make_array_from_process_local_data(row, batch),
    np.repeat(np.arange(float(processes)), 2 * local)[:, None] * np.ones(3),
)

# From single devices' parts, over all processes and over the first two.
for count in (processes, min(2, processes)):
    chosen = [d for process in range(count) for d in jax.local_devices(process_index=process)]
    grid = jax.make_mesh((count, local), ("i", "j"), devices=chosen)
    parts = [
        jax.device_put(jnp.array([[me * local + n]]), d) for n, d in enumerate(jax.local_devices())
    ]
    array = jax.make_array_from_single_device_arrays(
        (count, local),
        NamedSharding(grid, P("i", "j")),
        parts if me < count else [],
        dtype=jnp.int32,
    )
    assert [int(shard.data[0, 0]) for shard in array.addressable_shards] == (
        [me * local + n for n in range(local)] if me < count else []
    )
multihost_utils.sync_global_devices("end of the tour")
print(f"process {me}: all arrays are right")

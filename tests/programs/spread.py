"""Make an array over the devices of all ranks, or of some."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def spread(rows: int, devices: list[jax.Device] | None = None) -> jax.Array:
    """An array of ones, each process's share of it on its own devices."""
    mesh = Mesh(np.array(devices or jax.devices()), ("all",))
    sharding = NamedSharding(mesh, P("all"))
    shape = (rows * mesh.size, 4)
    return jax.make_array_from_callback(shape, sharding, lambda index: np.ones(shape)[index])

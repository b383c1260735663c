"""What a program finds in its ranks, seen from inside them: these tests run there themselves."""

import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from jax.experimental.multihost_utils import process_allgather, sync_global_devices
from jax.sharding import NamedSharding, PartitionSpec

pytestmark = pytest.mark.mcjax(processes=2, cpu_devices=2)


@pytest.mark.every_jax
@pytest.mark.mcjax(processes=[1, 2, 4])
def test_the_guides_sum() -> None:
    ranks = jax.process_count()
    assert (jax.local_device_count(), jax.device_count()) == (2, 2 * ranks)
    mesh = jax.make_mesh((ranks, 2), ("process", "device"))
    sharding = NamedSharding(mesh, PartitionSpec("process", "device"))
    spread = jax.device_put(np.arange(8 * ranks).reshape(ranks, 8), sharding)
    expected = sum(math.sin(number) for number in range(8 * ranks))
    assert jnp.sum(jnp.sin(spread)) == pytest.approx(expected, abs=1e-4)


def test_coordinates() -> None:
    """As variables, and as JAX has them."""
    rank = jax.process_index()
    assert os.environ["JAX_PROCESS_ID"] == os.environ["MCJAX_LOCAL_PROCESS_ID"] == str(rank)
    assert os.environ["JAX_NUM_PROCESSES"] == os.environ["MCJAX_LOCAL_NUM_PROCESSES"] == "2"
    assert process_allgather(rank).tolist() == [0, 1]


def test_one_job_and_one_hash_seed() -> None:
    """Sets have one order in all ranks, or these would run different programs."""
    seen = (int(os.environ["MCJAX_JOB_ID"], 16), hash("one") % 2**31)
    first, second = process_allgather(np.array(seen, dtype=np.uint32)).tolist()
    assert first == second


def test_nobody_else_can_connect() -> None:
    """Ranks listen on loopback alone, and for the coordinator on no port at all."""
    sync_global_devices("connected")
    connections = psutil.Process().net_connections("inet")
    listening = {one.laddr for one in connections if one.status == psutil.CONN_LISTEN}
    coordinator = int(os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")[2])
    # IPv4 may be on a socket for both.
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert coordinator not in {address.port for address in listening}

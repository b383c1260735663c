"""Hold other values than the other ranks in a replicated array, in the way that argv[1] says."""

import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

way = sys.argv[1] if len(sys.argv) > 1 else ""
jax.distributed.initialize()
last = jax.process_index() == jax.process_count() - 1
devices = np.array(jax.devices())
data = jax.sharding.Mesh(devices, ("data",))
both = jax.sharding.Mesh(devices.reshape(-1, jax.local_device_count()), ("data", "model"))


def is_wrong(*ways):
    return way in ways and last


def replicate(value, mesh=data, axis=()):
    sharding = NamedSharding(mesh, PartitionSpec(*axis))
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def flip(array):
    """Return the array with another bit in one of this rank's shards."""
    shards = [np.array(shard.data) for shard in array.addressable_shards]
    shards[0].reshape(-1).view(np.uint8)[5] ^= 1
    on = [
        jax.device_put(s, d.device) for s, d in zip(shards, array.addressable_shards, strict=True)
    ]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, on)


if way == "late" and jax.process_index():
    time.sleep(1.5)  # the first rank comes long before the others
chance = np.random.default_rng(8 if is_wrong("seed", "late") else 7)
weights = chance.normal(size=(16, 32)).astype(np.float32)
if is_wrong("checkpoint"):
    weights = weights * np.float32(0.99)  # of another step
params = {"w": replicate(weights), "b": replicate(np.zeros(32, np.float32))}
if way == "uninitialised":
    memory = np.empty(32, np.float32)
    memory[3] = jax.process_index()  # of whatever was there
    params["b"] = replicate(memory)
if way == "tensor-parallel":
    weights[0, -1] += is_wrong("tensor-parallel")
    params["w"] = replicate(weights, both, (None, "model"))
    params["b"] = replicate(np.zeros(32, np.float32), both, ("model",))
if way == "key":
    params["key"] = jax.random.wrap_key_data(
        replicate(np.array([0, 7 + last], np.uint32)), impl="threefry2x32"
    )
for type_ in ("bfloat16", "float8_e4m3fn", "int4", "bool", "complex64"):
    if way == type_:
        small = np.ones((3, 5)).astype(jnp.dtype(type_))
        small[1, 1] = small[1, 1] if not last else 0
        params["small"] = replicate(small)


def differentiate(params, batch):
    def loss(params):
        return ((jnp.tanh(batch @ params["w"] + params["b"]) - 1) ** 2).mean()

    found, by = jax.value_and_grad(loss)({name: params[name] for name in "wb"})
    return found, {**params, **{name: params[name] - 0.05 * by[name] for name in "wb"}}


@partial(jax.jit, donate_argnums=0 if way == "donated" else ())
def step(params, batch):
    loss, params = differentiate(params, batch)
    return params, loss


@jax.jit
def evaluate(params, batch):
    return (batch @ params["w"]).mean()


@jax.jit
def train(params, batch, rate):
    loss, new = differentiate(params, batch)
    return jax.tree.map(lambda old, new: old + rate * (new - old), params, new), loss


mesh = both if way == "tensor-parallel" else data
batches = NamedSharding(mesh, PartitionSpec("data"))
for number in range(60 if way else 40):
    rows = np.random.default_rng([number, jax.process_index()]).normal(size=(8, 16))
    batch = jax.make_array_from_process_local_data(batches, rows.astype(np.float32))
    if way == "rate":
        params, loss = train(params, batch, 1.5 if last and number >= 3 else 1.0)
    else:
        params, loss = step(params, batch)
    if number == 30 and is_wrong("bit", "donated"):
        params["w"] = flip(params["w"])
    if way == "stale" and number == 30:  # a broadcast that one rank has missed
        new = np.full(32, 1.0, np.float32)
        if not last:
            params["b"] = replicate(new)
    if way == "restored" and number == 30:
        evaluate({"w": replicate(weights + np.float32(last))}, batch)
    if way == "mapped" and number == 30:  # the mean of each device's own rows
        spec, rows = PartitionSpec(), PartitionSpec("data")
        from jax import shard_map  # which jax 0.6 lacks

        scale = shard_map(
            lambda w, x: (w * x.mean(), jax.lax.pmean(x.mean(), "data")),
            mesh=data,
            in_specs=(spec, rows),
            out_specs=(spec, spec),
            check_vma=False,
        )
        jax.jit(scale)(params["w"], batch)
    if number > 30:
        time.sleep(0.1)
    kept = [(array.shape, array.dtype) for array in jax.live_arrays()]
    assert ((), np.uint32) not in kept, "digests are kept"
    if number % 8 == 0:
        float(loss)
print("loss", float(loss), flush=True)

"""Run programs of the kinds in argv, or of all kinds, and print a digest of each result.

No way of compiling may change one.
"""

import hashlib
import sys
import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

try:
    from jax import shard_map
except ImportError:  # an older jax
    from jax.experimental.shard_map import shard_map

jax.distributed.initialize()
me, devices, local = jax.process_index(), jax.devices(), jax.local_devices()
data = np.random.RandomState(3).randn(4 * len(devices), 8).astype(np.float32)
square = data.T @ data


def spread(chosen: list[jax.Device], rows: np.ndarray = data) -> jax.Array:
    sharding = NamedSharding(Mesh(np.array(chosen), ("all",)), P("all"))
    return jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])


def digest(result: object) -> str:
    found = hashlib.sha256()
    for leaf in jax.tree_util.tree_leaves(result):
        shards = getattr(leaf, "addressable_shards", None)
        for shard in sorted(shards or [], key=lambda shard: shard.device.id):
            found.update(f"{shard.device} {shard.index} {shard.data.dtype}".encode())
            found.update(np.asarray(shard.data).tobytes())
        found.update(repr(leaf).encode() if shards is None else b"")
    return found.hexdigest()[:16]


def train(x: jax.Array) -> list[jax.Array]:
    step = jax.jit(jax.value_and_grad(lambda x, w: (jnp.tanh(x @ w) ** 2).mean(), argnums=(0, 1)))
    return [step(x, square)[0], *step(x, square)[1]]


def donate(x: jax.Array) -> list[object]:
    twice = jax.jit(lambda x: x * 2, donate_argnums=0)
    return [twice(twice(x + 1)), x.is_deleted()]


def permute(x: jax.Array) -> jax.Array:
    turn = [(i, (i + 1) % x.sharding.mesh.size) for i in range(x.sharding.mesh.size)]
    body = lambda part: jax.lax.ppermute(part, "all", turn) + jax.lax.axis_index("all")  # noqa: E731
    return jax.jit(shard_map(body, mesh=x.sharding.mesh, in_specs=P("all"), out_specs=P("all")))(x)


def call_back(x: jax.Array) -> list[object]:
    """Which is bound to the process that compiles it: each rank returns another number."""
    shape = jax.ShapeDtypeStruct((8, 8), np.float32)
    seen: list[str] = []
    jax.debug.inspect_array_sharding(x, callback=lambda _: seen.append("seen"))
    return [jax.jit(lambda s: jax.pure_callback(lambda s: s * (me + 2), shape, s))(square), *seen]


def partition(x: jax.Array) -> jax.Array:
    """Compile with a function of each rank's own."""
    scaled = custom_partitioning(lambda x: x)

    def lower(mesh: Mesh, args: tuple, _: object) -> tuple:
        sharding = args[0].sharding
        return mesh, lambda x: x * (me + 2.0), sharding, (sharding,)

    scaled.def_partition(
        partition=lower,
        infer_sharding_from_operands=lambda _mesh, args, _: args[0].sharding,
        **({} if jax.__version__.startswith("0.6.") else {"sharding_rule": "i j -> i j"}),
    )
    return jax.jit(scaled)(x)


def on_each_device(_: jax.Array) -> list[jax.Array]:
    """In threads at once, for devices and meshes of this process alone."""
    results: list[list[jax.Array]] = [[] for _ in range(3)]

    def work(mine: list[jax.Array]) -> None:
        wave = jax.jit(lambda x: jnp.sin(x) @ x.T)
        mine += [wave(jax.device_put(data + me, device)) for device in local]
        mine += [permute(spread(chosen)) for chosen in (local, local[::-1])]

    threads = [threading.Thread(target=work, args=[mine]) for mine in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [result for mine in results for result in mine]


def solve(_: jax.Array) -> list[jax.Array]:
    return [jax.jit(f)(square) for f in (jnp.linalg.inv, jnp.linalg.eigh)]


def loop(x: jax.Array) -> list[jax.Array]:
    total = jax.jit(lambda x: jax.lax.scan(lambda c, row: (c + row, c * row), x[0], x))(data)
    turned = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jnp.cos(x) + i, x))(x)
    return [turned, *total, jax.random.normal(jax.random.PRNGKey(3), (5,))]


def compile_ahead(x: jax.Array) -> list[object]:
    lowered = jax.jit(lambda x: jnp.exp(x).sum(0)).lower(x)
    ahead = lowered.compile()
    memory = ahead.memory_analysis()
    sizes = [memory.temp_size_in_bytes, memory.output_size_in_bytes]
    costs = jax.tree_util.tree_leaves(ahead.cost_analysis())  # by name
    return [ahead(x), costs, sizes, "ENTRY" in ahead.as_text()]


def compile_again(x: jax.Array) -> list[jax.Array]:
    jax.clear_caches()
    return train(x) + train(x)


def differ(_: jax.Array) -> list[jax.Array]:
    return [jax.jit(lambda x: x * (me + 1) @ x.T)(data), jax.jit(jnp.sort)(data[: me + 2])]


def serialize(x: jax.Array) -> list[bool]:
    """Import what does it after the program has been loaded."""
    ahead = jax.jit(lambda x: jnp.sin(x) @ x.T).lower(x).compile()
    from jax.experimental.serialize_executable import deserialize_and_load, serialize

    return [digest(deserialize_and_load(*serialize(ahead))(x)) == digest(ahead(x))]


# What rank 1 compiles, and rank 0 loads: what JAX's own cache then writes can be run too.
order = jax.jit(lambda x: jnp.sinh(x) @ x.T)
for rank in (1, 0):
    if me == rank:
        print("in turn", digest(order(data)), flush=True)
    multihost_utils.sync_global_devices(f"rank {rank} has compiled it")

KINDS: list[Callable[[jax.Array], object]] = [train, donate, permute, call_back, partition]
KINDS += [on_each_device, solve, loop, compile_ahead, compile_again, differ, serialize]
chosen = sys.argv[1:] or [kind.__name__ for kind in KINDS]
for kind in [kind for kind in KINDS if kind.__name__ in chosen]:
    print(kind.__name__, digest(kind(spread(devices))), flush=True)
print("reversed", digest(permute(spread(devices[::-1]))), flush=True)

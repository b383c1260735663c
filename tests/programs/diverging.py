"""Run different programs on some ranks, or seem to, in the ways that argv says."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from spread import spread

try:
    from jax import set_mesh, shard_map
except ImportError:  # an older jax
    from jax.experimental.shard_map import shard_map
    from jax.sharding import use_mesh as set_mesh

jax.distributed.initialize()
me, last = jax.process_index(), jax.process_count() - 1
odd = me == last


@jax.jit
def total(x: jax.Array) -> jax.Array:
    return x.sum()


@jax.jit
def double(x: jax.Array) -> jax.Array:
    return (2 * x).sum()


@jax.jit
def metric(x: jax.Array) -> jax.Array:
    return (x * x).mean()


def part(way: str) -> None:
    if way == "code":  # a silent wrong number
        y = jax.jit(lambda x: (x * 3 if odd else x * x + 1).sum())(x)  # at: code
        print("result", y)
    elif way == "shape":
        total(spread(5 if odd else 3)).block_until_ready()  # at: shape
    elif way == "early":
        if odd:
            sys.exit()
        double(x).block_until_ready()  # at: early
    elif way == "constant":
        offset = np.full((4,), float(me))
        jax.jit(lambda x: (x + offset).sum())(x).block_until_ready()  # at: constant


def only_seem_to_part(way: str) -> None:
    if way == "on some":  # programs of rank 0 alone, and of half of the ranks
        if me == 0:
            print("metric", metric(jnp.arange(8.0)))
        half = [d for d in jax.devices() if d.process_index % 2 == me % 2]
        for _ in range(1 + me % 2):
            print("half", (double if me % 2 else metric)(spread(2, half)))
        print("all", double(x))
    elif way == "at other moments":
        if me == 0:  # asks for a program's cost before anybody runs it
            print(double.lower(x).compile().cost_analysis() is not None)
        print("metric", metric(x))
        if odd:
            jax.clear_caches()
        print("first", total(x))
        print("double", double(x))
        print("metric", metric(x))
    elif way == "rank 0 alone":  # of what every process has all
        loss = jax.jit(jnp.mean, out_shardings=NamedSharding(x.sharding.mesh, P()))(x)
        if me == 0:
            print("loss", loss * 100, loss + 1)
        print("first", total(x))
    elif way == "rank 0 alone, with a mesh":  # explicit axes put constraints that divide nothing
        mesh = jax.make_mesh((jax.device_count(),), ("all",))
        whole, parts = NamedSharding(mesh, P()), NamedSharding(mesh, P("all"))
        three = jax.device_put(np.float32(3), whole)
        if me == 0:
            print("times", jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, whole))(three))
            alone = shard_map(lambda x: x + 1, mesh=mesh, in_specs=P(), out_specs=P())
            print("alone", jax.jit(alone)(three))
            with set_mesh(mesh):
                print("loss", three * 100)
        spread_out = jax.device_put(np.ones(4 * jax.device_count(), np.float32), parts)
        print("all", jax.jit(lambda x: x.sum())(spread_out))
    elif way == "callbacks":

        @jax.jit
        def loud(x: jax.Array) -> jax.Array:
            jax.debug.print("sum {}", x.sum())
            return x.sum()

        _ballast = [object() for _ in range(1000 * me)]  # other addresses on each
        loud(x).block_until_ready()


x = spread(2)
print("first", total(x))
for each in sys.argv[1:]:
    part(each)
    only_seem_to_part(each)
multihost_utils.sync_global_devices("end")
print("end")

"""Run other programs on the last rank in the way that argv[1] says, and then stay."""

import asyncio
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS, WHEN = 40, 10
way = sys.argv[1]
jax.distributed.initialize()
is_faulty = jax.process_index() == jax.process_count() - 1
mesh = Mesh(np.array(jax.devices()), ("all",))
values = np.ones(100_000 * mesh.size, np.float32)  # smaller programs are told when they are over
x = jax.make_array_from_callback(
    values.shape, NamedSharding(mesh, P("all")), lambda index: values[index]
)
rate = 0.2 if way == "constant" and is_faulty else 0.1


@jax.jit
def train(x: jax.Array) -> jax.Array:
    if way == "callback" and is_faulty:
        jax.debug.print("mean {}", x.mean())  # at: callback
    return x - rate * x.mean()


@jax.jit
def update(x: jax.Array) -> jax.Array:
    return x - x.max()


def evaluate(x: jax.Array) -> jax.Array:
    return jnp.tanh(x) + x.mean()  # at: evaluate


evaluate = jax.jit(evaluate)
models = [jax.jit(lambda x, n=n: x * n - x.mean()) for n in range(3)]


async def step(number: int) -> None:
    is_now = is_faulty and number == WHEN
    if number == 0 or way in ("constant", "callback"):
        train(x)
    update(x)
    if way == "skip":
        if not is_now:
            await asyncio.to_thread(evaluate, x)
    elif way == "repeat":
        for _ in range(1 + is_now):
            list(map(evaluate, [x]))
    elif way == "order":
        for model in models[::-1] if is_faulty and number else models:
            model(x)
    elif way == "end":
        evaluate(x)
    time.sleep(0.01)


async def run() -> None:
    for number in range(WHEN if way == "end" and is_faulty else STEPS):
        await step(number)


asyncio.run(run())
time.sleep(100 * (way != "end"))

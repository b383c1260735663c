"""Skip or delay a program on some ranks: `metric` is the mistake, other ways are harmless.

The way is in argv: `metric` is the mistake, the others look like it.
"""

import sys
import time

import jax
import jax.numpy as jnp
from spread import spread

jax.distributed.initialize()
way = sys.argv[1]
me, last = jax.process_index(), jax.process_count() - 1
x = spread(2)


@jax.jit
def step(x: jax.Array) -> jax.Array:
    return x - 0.01 * x.mean()


@jax.jit
def loss(x: jax.Array) -> jax.Array:
    return (x * x).sum()


@jax.jit
def metric(x: jax.Array) -> jax.Array:
    return jnp.abs(x).sum()


if way == "metric":
    until, number = time.monotonic() + 60, 0
    while time.monotonic() < until:
        x = step(x)  # at: step
        if number == 5 and me == 0:
            print("metric", float(metric(x)))  # at: metric
        number += 1
        float(loss(x))  # at: loss
elif way == "data":  # the others are in a new program long before
    for _ in range(20 if me == last else 0):
        time.sleep(0.1)
    print("metric", metric(step(x)))
elif way == "lag":  # nobody blocks, and one has more to do in between
    for number in range(21):
        x = step(x)
        if number % 7 == 6:
            x = jax.jit(lambda x, n=number: x - n * x.sum())(x)
        time.sleep(0.15 if me == last else 0)
    x.block_until_ready()
print("end")

"""Skip, repeat or reorder a known program at a step of the last rank, as argv says, on a mesh each.

The arguments are words such as `skip:5`. No program exchanges data, so that no rank waits.
"""

import sys
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS = 12
Step = Callable[[jax.Array], jax.Array]

jax.distributed.initialize()
rank, count = jax.process_index(), jax.process_count()


@jax.jit
def forward(x: jax.Array) -> jax.Array:
    return x * 2  # at: forward


@jax.jit
def update(x: jax.Array) -> jax.Array:
    return x - 1


@jax.jit
def evaluate(x: jax.Array) -> jax.Array:
    return x + 3


def call(step: Step, x: jax.Array) -> jax.Array:
    """Call what is given, as generic code does."""
    return step(x)


def one_step(fault: str, x: jax.Array) -> jax.Array:
    """Take a step with a fault, which is none for most."""
    ways: dict[str, list[Step]] = {
        "": [forward, update],
        "skip": [forward],
        "repeat": [forward, update, update],
        "swap": [update, forward],
        "other": [forward, evaluate],
        "extra": [forward, update, evaluate],
    }
    if fault == "reshape":  # known to all ranks
        forward(grown)
        return update(x)
    for step in ways[fault]:
        x = call(step, x)
    return x


for number, word in enumerate(sys.argv[1:]):
    fault, _, at = word.partition(":")
    places = np.array([d for d in jax.devices() if d.id % jax.local_device_count() == number])
    sharding = NamedSharding(Mesh(places, ("x",)), PartitionSpec("x"))
    x, grown = (
        jax.make_array_from_callback(
            (n,), sharding, lambda index, n=n: np.arange(float(n), dtype="f")[index]
        )
        for n in (count, 2 * count)
    )
    for step in (forward, update, evaluate):  # from here on all are known
        step(grown)
        step(x)
    for step_number in range(STEPS):
        is_here = rank == count - 1 and step_number == int(at or -1)
        x = one_step(fault if is_here else "", x)
        if step_number % 3 == 2:
            evaluate(x)
print("end")

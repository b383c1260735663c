"""Run ranks whose jax.process_index() is another rank's number, as on TPUs."""

import sys
import time

import jax
from jax._src import distributed
from spread import spread

jax.distributed.initialize()
way, state = sys.argv[1], distributed.global_state
state.process_id = (state.process_id + 1) % state.num_processes  # libtpu is asked, not initialize()
me = jax.process_index()
print("process", me)
half = [device for device in jax.devices() if device.process_index // 2 == me // 2]


@jax.jit
def total(x: jax.Array) -> jax.Array:
    return x.sum()


@jax.jit
def mean(x: jax.Array) -> jax.Array:
    return x.mean()


def show(result: jax.Array) -> None:
    print("result", result.block_until_ready(), flush=True)


if way == "right":  # programs of two ranks of four, and of all
    for program in (total, mean) if me < 2 else (mean, total, mean):
        show(program(spread(2, half)))
    show(total(spread(2)))
elif way == "some":
    if me < 2:
        show(total(spread(2, half)))
    show(mean(spread(2)))
elif way == "apart":
    if me < 2:
        show((total if me else mean)(spread(2, half)))  # at: apart
elif way == "late":
    if me == 1:
        print("asleep", flush=True)
        time.sleep(1000)
    if me == 0:
        show(total(spread(2, half)))  # at: late
elif way == "slices":
    print("slices", [device.slice_index for device in jax.devices()])

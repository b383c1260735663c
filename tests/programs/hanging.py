"""Wait for another rank in the way that argv[1] says.

argv[2] is for how many seconds rank 1, or all ranks, have something else to do.
"""

import os
import socketserver
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

way, seconds = sys.argv[1], float(sys.argv[2])


def load_batch() -> None:
    print("ready", flush=True)
    time.sleep(seconds)


if way == "initialize" and os.environ["JAX_PROCESS_ID"] == "1":
    load_batch()
jax.distributed.initialize()
late = jax.process_index() == 1
if way == "first" and late:
    load_batch()
multihost_utils.sync_global_devices("begun")


@jax.jit
def step(x: jax.Array) -> jax.Array:
    return x + jnp.sum(x)


def spread_ones(each: int = 1) -> jax.Array:
    mesh = Mesh(np.array(jax.devices()), ("x",))
    ones = np.ones(each * jax.device_count(), np.float32)
    return jax.make_array_from_callback(
        ones.shape, NamedSharding(mesh, P("x")), lambda index: ones[index]
    )


def train() -> None:
    """Steps, of which one rank takes its time for the fifth."""
    x = spread_ones()
    for number in range(8):
        if number == 4 and late and way == "train":
            load_batch()
        x = step(x)


@jax.jit
def shift(x: jax.Array, by: float) -> jax.Array:
    return x - by * x.mean()


@jax.jit
def accumulate(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x) - x.sum()


def get_batch(number: int) -> float:
    return float(number)


def train_on_batches() -> None:
    """Steps in a line with two calls; rank 1 takes one less, or skips another program once.

    Programs on smaller arrays are counted when they are over.
    """
    x = spread_ones(200_000)
    for number in range(8 + (way == "batches" and not late)):
        x = shift(x, get_batch(number))
        if way == "skip" and not (late and number == 5):
            x = accumulate(x)
    x.block_until_ready()


def call_back() -> None:
    """A program with a callback, which one rank runs for long while the other has finished."""

    calls = []

    def upload(x: jax.Array) -> None:
        calls.append(x)
        if len(calls) > 1:
            load_batch()

    @jax.jit
    def step_and_upload(x: jax.Array) -> jax.Array:
        jax.debug.callback(upload, x[0])
        return step(x)

    x = spread_ones()
    for _ in range(2):
        x = jax.block_until_ready(step_and_upload(x))


def step_in_thread() -> None:
    """Take steps for a while, for each of which one rank makes the other wait."""

    def steps() -> None:
        for _ in range(int(seconds)):
            time.sleep(late)
            multihost_utils.sync_global_devices("step")

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()


def serve() -> None:
    """Wait for clients, for a while."""
    server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    threading.Timer(seconds, server.shutdown).start()
    server.serve_forever()


if way == "train":
    train()
if way == "unhurried":
    load_batch()
    step_in_thread()
    if late:
        serve()
if way == "barrier":
    if late:
        load_batch()
    jax._src.distributed.global_state.client.wait_at_barrier("save", 10**6)
if way == "left":
    if late:
        jax.distributed.shutdown()
    multihost_utils.sync_global_devices("without it")
if way == "unused":  # silent steps that use hardly any processor
    x = spread_ones()
    for _ in range(int(10 * seconds)):
        step(x)
        time.sleep(0.1)
if way in ("batches", "skip"):
    train_on_batches()
if way == "callback":
    call_back()
if way == "uneven" and late:
    load_batch()
print("done")

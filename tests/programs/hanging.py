"""Wait for other ranks, or on all ranks for something else, in the way that argv[1] says.

argv[2] is for how many seconds one rank, or all of them, have something else to do.
"""

import os
import socketserver
import sys
import threading
import time

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

way, seconds = sys.argv[1], float(sys.argv[2])


def load_batch() -> None:
    print("ready", flush=True)
    time.sleep(seconds)


if way == "initialize" and os.environ["JAX_PROCESS_ID"] == "1":
    load_batch()
if way == "versions" and os.environ["JAX_PROCESS_ID"] == "1":
    jax.version.__version__ = "0.6.0"
if way == "nobody":
    jax.distributed.initialize("192.0.2.7:5", 3, int(os.environ["JAX_PROCESS_ID"]))
jax.distributed.initialize()
late = jax.process_index() == 1
if way == "first" and late:
    load_batch()
if way == "never" and late:
    sys.exit()
multihost_utils.sync_global_devices("begun")


@jax.jit
def step(x: jax.Array) -> jax.Array:
    return x + jnp.sum(x)


def spread_ones() -> jax.Array:
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    ones = jnp.ones(jax.device_count())
    return jax.make_array_from_callback(
        ones.shape, NamedSharding(mesh, P("x")), lambda index: ones[index]
    )


def train(*, more: bool = False) -> None:
    """Steps, of which one rank takes its time for the fifth, or does not take the last one."""
    x = spread_ones()
    for number in range(8 + more):
        if number == 4 and late and way == "train":
            load_batch()
        x = step(x)


def call_back() -> None:
    """A program with a callback, which one rank runs for long while the others have finished."""

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


def busy() -> None:
    """A long step of all ranks."""
    matrix = jnp.ones((100, 100))
    multiply = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, x: jnp.tanh(x @ x.T), x))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        matrix = multiply(matrix)
    matrix.block_until_ready()


def compile_for_long() -> None:
    def long(x: jax.Array) -> jax.Array:
        for number in range(int(120 * seconds)):
            x = jnp.sin(x * number).at[number % 400].set(jnp.cos(x[number % 7]))
        return x

    jax.jit(long)(jnp.ones((400, 400))).block_until_ready()


def serve() -> None:
    """Wait for clients, for a while."""
    server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    threading.Timer(seconds, server.shutdown).start()
    server.serve_forever()


def fetch() -> None:
    loader = threading.Thread(target=load_batch)
    loader.start()
    loader.join()


def join() -> None:
    """Wait for a thread that waits for the other ranks, but for one rank's."""
    client = jax._src.distributed.global_state.client
    barrier = threading.Thread(target=lambda: client.wait_at_barrier("joined", 10**6))
    waits = threading.Thread(target=load_batch) if late else barrier
    waits.start()
    waits.join()


def step_in_thread() -> None:
    """Take steps for a while, for each of which one rank makes the others wait."""

    def steps() -> None:
        for _ in range(int(seconds)):
            time.sleep(late)
            multihost_utils.sync_global_devices("step")

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()


if way == "train":
    train()
if way == "stepping":
    step_in_thread()
if way == "joined":
    join()
if way == "collective":
    if late:
        load_batch()
    multihost_utils.sync_global_devices("collective")
if way == "barrier":
    if late:
        load_batch()
    jax._src.distributed.global_state.client.wait_at_barrier("save", 10**6)
if way == "ended" and not late:
    multihost_utils.sync_global_devices("one more")
if way == "left":
    if late:
        jax.distributed.shutdown()
    multihost_utils.sync_global_devices("without it")
if way == "steps":
    train(more=not late)
if way == "callback":
    call_back()
if way == "uneven" and late:
    load_batch()
if way == "apart" and late:
    multihost_utils.sync_global_devices("here")
elif way == "apart":
    multihost_utils.broadcast_one_to_all(jnp.zeros(3))
if way == "loading":
    load_batch()
if way == "busy":
    busy()
if way == "compiling":
    if late:
        compile_for_long()
    multihost_utils.sync_global_devices("compiled")
if way in ("serving", "served") and late:
    serve()
if way == "fetched":
    if late:
        fetch()
    multihost_utils.sync_global_devices("fetched")
if way == "served":
    multihost_utils.sync_global_devices("served")
print("done")

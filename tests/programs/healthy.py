"""Run the same programs on all ranks, in ways in which Python differs between ranks.

No rank may be accused of anything.
"""

import asyncio
import contextvars
import functools
import gc
import operator
import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS = 40
jax.distributed.initialize()
rank, count = jax.process_index(), jax.process_count()
chance = random.Random(rank)
mesh = Mesh(np.array(jax.devices()), ("all",))


def spread(rows: int = 2) -> jax.Array:
    values = np.ones(rows * mesh.size, np.float32)
    sharding = NamedSharding(mesh, P("all"))
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def nap(longest_s: float = 0.005) -> None:
    time.sleep(chance.random() * longest_s)


half = jax.jit(lambda x: x * 0.5)  # exchanges no data
step = jax.jit(lambda x: jnp.tanh(x) + x.mean())
total = jax.jit(lambda x: (x + 1).sum())
both = jax.jit(lambda x, y: x + y - y.max())
x = spread()


def call_from_c() -> None:
    for _ in range(STEPS):
        if rank == 0:
            contextvars.copy_context().run(step, x)
        elif rank == 1:
            list(map(step, [x]))
        else:
            step(x)
        if rank == 0:
            functools.reduce(both, [x, x, x])
            operator.call(total, x)
        else:
            both(both(x, x), x)
            functools.partial(total, x)()


def catch() -> None:
    """Calls that fail, of one rank, and the same step again."""
    power = jax.jit(lambda x, n: (x**n).mean(), static_argnums=1)
    donate = jax.jit(lambda x: x + x.sum(), donate_argnums=0)
    gone = spread()
    gone.delete()
    for number in range(STEPS):
        if rank == 1 and number % 9 == 3:
            for bad in (lambda: step(gone), lambda: donate(gone), lambda: power(x, [1])):
                try:
                    bad()
                except (RuntimeError, ValueError, TypeError):
                    pass
        power(x, 2)
        donate(spread())


def look_up() -> None:
    """A table of metrics, of which rank 0's has a plain function more; and maps over trees."""
    metrics: dict[str, Callable[[jax.Array], object]] = {"total": total, "half": half}
    if rank == 0:
        metrics["time"] = lambda _: time.time()
    tree = {"w": x}
    for _ in range(STEPS):
        for metric in metrics.values():
            metric(x)
        tree = jax.tree.map(step, tree)
        if rank == 0:
            jax.tree.map(lambda v: v.shape, {str(k): x for k in range(8)})


class Trainer:
    @functools.partial(jax.jit, static_argnums=(0, 1))
    def step(self, train: bool, x: jax.Array) -> jax.Array:
        return x * train - x.mean()

    def timed(self, x: jax.Array) -> jax.Array:
        return self.step(True, x)


def bind() -> None:
    trainer = Trainer()
    run = trainer.timed if rank == 0 else functools.partial(trainer.step, True)
    for _ in range(STEPS):
        run(x)


def finalize() -> None:
    """Rank 0's garbage collector runs the same functions on its own arrays."""
    mine = jnp.arange(12.0)

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            total(mine)

    for number in range(STEPS):
        if rank == 0:
            Cycle()
        total(x)
        if number % 20 == rank:
            gc.collect()


def hand_over() -> None:
    """Threads of other names, one at a time: a pool, a watchdog, an event loop."""
    pool = ThreadPoolExecutor(1 + rank)

    async def loop() -> None:
        for _ in range(STEPS):
            await asyncio.to_thread(step, x) if rank else step(x)

    for number in range(STEPS):
        pool.submit(step, x).result() if rank == 0 else step(x)
        if number % 10 == 9 and rank == 1:
            thread = threading.Thread(target=total, args=(x,), name="evaluate")
            thread.start()
            thread.join()
        elif number % 10 == 9:
            total(x)
    asyncio.run(loop())
    if rank == 0:
        train = threading.Thread(target=call_from_c, name="chief")
        train.start()
        train.join()
    else:
        call_from_c()


def prefetch() -> None:
    """A loader whose programs exchange no data, in its own order on each rank."""
    batches: queue.Queue[jax.Array] = queue.Queue(3)

    def load() -> None:
        for _ in range(STEPS):
            batches.put(half(spread()))
            nap()

    threading.Thread(target=load, daemon=True).start()
    for _ in range(STEPS):
        step(batches.get())
        if rank == 0:
            half(x)


def forward_shardings() -> None:
    """Programs whose results look like those of others, of which rank 0 runs some alone."""
    same = jax.jit(lambda x: x + 0)
    for _ in range(STEPS):
        y = step(x)
        if rank == 0:
            same(same(y))
        total(same(y))


def toggle_checks() -> None:
    for number in range(STEPS):
        jax.config.update("jax_debug_nans", number % 4 > 1)
        step(x)
        with jax.debug_infs(rank == 0):
            total(x)
    jax.config.update("jax_debug_nans", False)


for way in (
    *(call_from_c, catch, look_up, bind, finalize, hand_over, prefetch),
    *(forward_shardings, toggle_checks),
):
    way()
try:
    jax.config.update("jax_debug_nans", True)
    jax.jit(lambda x: 0.0 / (x.sum() * 0))(x)
except FloatingPointError:
    print("found the nan")
print("end", float(total(x)))

"""Start a child process that calls initialize() too."""

import multiprocessing

import jax
from jax.experimental import multihost_utils


def load(item: int) -> int:
    return item * item


jax.distributed.initialize()
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("loaded", pool.map(load, range(3)), flush=True)
    rank = jax.numpy.asarray(jax.process_index())
    print("sum", multihost_utils.process_allgather(rank).sum(), flush=True)

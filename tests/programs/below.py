"""Start child processes that call initialize() too, as argv says."""

import multiprocessing
import subprocess
import sys

import jax

WAY = sys.argv[1]


def load(item: int) -> int:
    return item * item


def make_pool() -> "multiprocessing.pool.Pool":
    return multiprocessing.get_context("spawn").Pool(1)


if __name__ == "__main__" and WAY == "before":
    pool = make_pool()
jax.distributed.initialize()
if __name__ == "__main__":
    if WAY == "spawn":
        pool = make_pool()
    if WAY in ("spawn", "before"):
        print("loaded", pool.map(load, range(3)), flush=True)
        pool.terminate()
        pool.join()
    if WAY == "program":
        subprocess.run([sys.executable, __file__, "none"], check=True)
        print("ended", flush=True)
    from jax.experimental import multihost_utils

    if WAY != "none":
        rank = jax.numpy.asarray(jax.process_index())
        print("sum", multihost_utils.process_allgather(rank).sum(), flush=True)

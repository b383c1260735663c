"""Start child processes that call initialize() too, as argv says."""

import multiprocessing
import os
import subprocess
import sys

import jax

WAY = sys.argv[1]


def load(item: int) -> int:
    if WAY == "fails":
        raise KeyError(item)
    if WAY == "exits":
        os._exit(3)
    return item * item


def pool_of(method: str) -> "multiprocessing.pool.Pool":
    return multiprocessing.get_context(method).Pool(1)


if __name__ == "__main__" and WAY == "before":
    early = pool_of("spawn")
jax.distributed.initialize()
if __name__ == "__main__":
    if WAY in ("spawn", "forkserver", "fails"):
        with pool_of(WAY if WAY != "fails" else "spawn") as pool:
            try:
                print("loaded", pool.map(load, range(3)), flush=True)
            except KeyError:
                print("not loaded", flush=True)
    if WAY == "before":
        print("loaded", early.map(load, range(3)), flush=True)
        early.terminate()
        early.join()
    if WAY == "exits":
        process = multiprocessing.get_context("spawn").Process(target=load, args=(1,))
        process.start()
        process.join()
        print("exited with", process.exitcode, flush=True)
    if WAY == "program":
        subprocess.run([sys.executable, __file__, "none"], check=True)
        print("ended", flush=True)
    from jax.experimental import multihost_utils

    if WAY != "none":
        rank = jax.numpy.asarray(jax.process_index())
        print("sum", multihost_utils.process_allgather(rank).sum(), flush=True)

"""Take steps with a sum over all ranks, in which rank 1 is slow in the way that argv says."""

import sys
import time

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather


def load_batch(step: int) -> np.ndarray:
    until = time.monotonic() + (0.2 if jax.process_index() == 1 else 0.01)
    while sys.argv[1] == "work" and time.monotonic() < until:
        np.sort(np.arange(10_000) * step % 7)
    if sys.argv[1] == "equal":
        time.sleep(0.05)
    return np.full(4, step)


jax.distributed.initialize()
until = time.monotonic() + float(sys.argv[2])
step = 0
while process_allgather(np.array(time.monotonic() < until)).all():
    step += 1
    process_allgather(load_batch(step))

"""Call initialize() so that it raises an exception, which the program catches."""

import os
import sys

import jax

RANK, WAY = int(os.environ["JAX_PROCESS_ID"]), sys.argv[1]


def start_backend() -> None:
    """Do what programs must not do before initialize()."""
    jax.devices()


if WAY == "all" or (WAY == "first" and RANK == 0):
    start_backend()
for _ in range(2 if WAY == "twice" else 1):
    try:
        jax.distributed.initialize("nowhere" if WAY == "wrong" else None)
    except (RuntimeError, IndexError) as error:
        print("caught:", error, flush=True)
print(f"process {jax.process_index()} of {jax.process_count()}", flush=True)

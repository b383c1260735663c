"""Call initialize() so that it raises an exception, which the program catches."""

import sys

import jax

WAY = sys.argv[1]


def start_backend() -> None:
    """Do what programs must not do before initialize()."""
    jax.devices()


if WAY == "all":
    start_backend()
for _ in range(2 if WAY == "twice" else 1):
    try:
        jax.distributed.initialize()
    except RuntimeError as error:
        print("caught:", error, flush=True)
print(f"process {jax.process_index()} of {jax.process_count()}", flush=True)

"""End rank 1 at once, while rank 0 computes alone for `argv[1]` more seconds."""

import sys
import time

import jax

jax.distributed.initialize()
if jax.process_index() == 0:
    time.sleep(float(sys.argv[1]))
    print("slow one done")

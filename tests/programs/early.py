"""Rank 1 is done at once; rank 0 has `argv[1]` more seconds of work that needs nobody."""

import sys
import time

import jax

jax.distributed.initialize()
if jax.process_index() == 0:
    time.sleep(float(sys.argv[1]))
    print("slow one done")

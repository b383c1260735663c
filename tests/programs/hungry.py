"""Use more memory in rank 1 than there is."""

import os

import jax
from jax.experimental import multihost_utils

jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
if jax.process_index() == 1:
    block = os.urandom(1 << 20)  # which no swap compresses
    kept = [bytearray(block) for _ in range(1 << 14)]
multihost_utils.sync_global_devices("never")

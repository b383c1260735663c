"""Rank 1 calls initialize() with other coordinates than it was given."""

import os
import sys

import jax

OTHER = {
    "process_id": {"process_id": 0},
    "address": {"coordinator_address": "127.0.0.1:1"},
    "too big": {"process_id": int(os.environ["JAX_NUM_PROCESSES"])},
}
mine = OTHER[sys.argv[1]] if os.environ["JAX_PROCESS_ID"] == "1" else {}
jax.distributed.initialize(initialization_timeout=5, **mine)

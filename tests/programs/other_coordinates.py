"""Rank 1, or with "all" every rank, calls initialize() with other coordinates than it was given."""

import os
import sys

import jax

OTHER = {
    "all": {"num_processes": int(os.environ["JAX_NUM_PROCESSES"]) + 1},
    "process_id": {"process_id": 0},
    "address": {"coordinator_address": "127.0.0.1:1"},
    "too big": {"process_id": int(os.environ["JAX_NUM_PROCESSES"])},
}
odd = os.environ["JAX_PROCESS_ID"] == "1" or sys.argv[1] == "all"
mine = OTHER[sys.argv[1]] if odd else {}
jax.distributed.initialize(initialization_timeout=5, **mine)

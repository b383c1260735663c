"""Leave the job in rank 1, or stand still, in the way that argv says, until JAX gives up."""

import os
import signal
import sys
import time

import jax
from jax.experimental import multihost_utils

way = sys.argv[1]
patience = {"shutdown_timeout_seconds": 3, "heartbeat_timeout_seconds": 10}
jax.distributed.initialize(initialization_timeout=8, **patience)
multihost_utils.sync_global_devices("started")
if jax.process_index() == 1:
    if way.startswith("_exit"):
        os._exit(0)
    if way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if way == "late":
        time.sleep(60)
    sys.exit()  # into JAX's exit barrier
if way in ("_exit in a collective", "late"):
    multihost_utils.sync_global_devices("never")
time.sleep(60)

"""Kill rank 1; the other ranks log the loss, and exit with a status of their own."""

import logging
import os
import signal
import sys

import jax
from jax.experimental import multihost_utils

jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
try:
    if jax.process_index() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1000):
        multihost_utils.sync_global_devices("step")
except Exception:
    logging.exception("the step failed")
    sys.exit(3)

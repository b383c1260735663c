"""Fail in rank 1; the other ranks handle the loss in the way that argv says, and end."""

import logging
import os
import signal
import sys
import traceback

import jax
from jax.experimental import multihost_utils

way = sys.argv[1]
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
try:
    if jax.process_index() == 1:
        if way == "hard":
            raise ValueError("bad batch")
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1000):
        multihost_utils.sync_global_devices("step")
except Exception as error:
    if way == "wrap":
        raise RuntimeError("the step failed") from error
    if way == "group":
        raise ExceptionGroup("some tasks failed", [error]) from None
    if way == "exit with words":
        sys.exit(f"the step failed: {error}")
    if way == "log and exit":
        logging.exception("the step failed")
        sys.exit(3)
    traceback.print_exc()
    os._exit(3)

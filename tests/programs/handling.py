"""Fail in rank 1 as a victim would; the other ranks handle the SIGTERM and leave."""

import signal
import sys
import time

import jax
from jax._src import distributed
from jax.experimental import multihost_utils


def leave(signum: int, frame: object) -> None:
    print("leaving with 5", flush=True)
    sys.exit(5)


jax.distributed.initialize()
if jax.process_index() != 1:
    signal.signal(signal.SIGTERM, leave)
multihost_utils.sync_global_devices("started")
if jax.process_index() == 1:
    distributed.global_state.client.blocking_key_value_get("nobody sets this", 500)
while True:
    time.sleep(0.05)

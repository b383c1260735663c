"""Keep rank 1 away: other ranks wait for it in a collective or in initialize()."""

import os
import sys
import time

import jax
from jax.experimental import multihost_utils


def never_arrives() -> None:
    print("ready", flush=True)
    time.sleep(1000)


if sys.argv[1] == "initialize" and os.environ["JAX_PROCESS_ID"] == "1":
    never_arrives()
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
if jax.process_index() == 1:
    never_arrives()
print("ready", flush=True)
multihost_utils.sync_global_devices("never")

"""Take part in the job and leave it, as argv says, as one of several programs of a rank."""

import sys
import time

import jax
from jax.experimental import multihost_utils

way = sys.argv[1]
jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
if way == "second":
    time.sleep(jax.process_index())
    print("sum", multihost_utils.process_allgather(jax.numpy.arange(3.0)).sum())

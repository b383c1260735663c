"""Join the job, wait until the file of this name is there, and end with a collective."""

import os
import sys
import time

import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
print("joined", os.environ["JAX_COORDINATOR_ADDRESS"], os.environ["MCJAX_JOB_ID"], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print("sum", process_allgather(jax.process_index()).sum(), flush=True)

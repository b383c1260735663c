"""Train until a preemption notice comes, then save and leave."""

import time

import jax
from jax.experimental import multihost_utils

jax.distributed.initialize()
multihost_utils.sync_global_devices("started")
print("training", flush=True)
step = 0
while not multihost_utils.reached_preemption_sync_point(step):
    time.sleep(0.05)
    step += 1
print("saved", flush=True)

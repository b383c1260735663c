"""Continue when another process dies: `FAILING FOLDER`.

Rank FAILING is killed at its fourth step. Each step is a barrier of those that live; process 0 says
that the job is over when one is missed. It leaves last, for it has the coordination service. What
they say to one another are files in FOLDER.
"""

import os
import sys
import time

import jax
from jax.experimental import multihost_utils

failing, folder = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_enable_recoverability", True)
jax.distributed.initialize()
rank, ranks = jax.process_index(), jax.process_count()

over = f"{folder}/over"
steps, lost_at, living = 0, None, []
while not os.path.exists(over):
    if rank == failing and steps == 3:
        os.kill(os.getpid(), 9)
    if rank == 0 and lost_at is not None and steps > lost_at:
        open(over, "w").close()  # before the barrier, so that all see it after that
    try:
        with multihost_utils.live_devices(jax.devices()) as devices:
            living = sorted({device.process_index for device in devices})
    except Exception as error:
        print(f"rank {rank}: {type(error).__name__}", flush=True)
        lost_at = steps
        continue
    if lost_at is None and len(living) < ranks:
        lost_at = steps
    steps += 1
print(f"rank {rank} ends", flush=True)
if rank:
    jax.distributed.shutdown()
    open(f"{folder}/{rank}", "w").close()
if rank == 0:
    print("living:", living, flush=True)
    while len(os.listdir(folder)) < ranks - 1:
        time.sleep(0.1)

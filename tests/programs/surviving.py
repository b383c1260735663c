"""Continue when another process dies, and let it join again: `FAILING UNTIL FOLDER`.

Rank FAILING (or `none`) is killed in its first life. Each step is a barrier of those that live; process 0 says that the job is over: when one is missed (UNTIL `alone`), or has come back
(`all`). It leaves last, for it has the coordination service. What they say to one another are files
in FOLDER.
"""

import os
import sys
import time

import jax
from jax.experimental import multihost_utils

until, folder = sys.argv[2:]
failing = -1 if sys.argv[1] == "none" else int(sys.argv[1])
life = int(os.environ.get("MCJAX_RANK_RESTART", 0))
jax.config.update("jax_enable_recoverability", True)
jax.distributed.initialize()
rank, ranks = jax.process_index(), jax.process_count()
print(f"rank {rank} life {life} joined", flush=True)

over = f"{folder}/over"
steps, lost_at, living = 0, None, []
while not os.path.exists(over):
    if rank == failing and life == 0 and steps == 3:
        os.kill(os.getpid(), 9)
    is_past_it = lost_at is not None and steps > lost_at
    if rank == 0 and is_past_it and (until == "alone" or len(living) == ranks):
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
print(f"rank {rank} life {life} ends", flush=True)
if rank:
    jax.distributed.shutdown()
    open(f"{folder}/{rank}", "w").close()
if rank == 0:
    print("living:", living, flush=True)
    while len(os.listdir(folder)) < ranks - (until == "alone"):
        time.sleep(0.1)

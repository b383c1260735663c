"""Write files in every rank, and end in the way that argv says: `WAY FOLDER RANK`."""

import atexit
import logging.handlers
import sys
import tempfile
import time

import jax
from jax.experimental import multihost_utils

way, folder, culprit = sys.argv[1], sys.argv[2], int(sys.argv[3])
jax.distributed.initialize()
rank = jax.process_index()
multihost_utils.sync_global_devices("started")
if way == "shutdown at exit":
    atexit.register(jax.distributed.shutdown)
metrics = open(f"{folder}/{rank}.csv", "w")  # noqa: SIM115  # left to Python's end
metrics.write("loss\n")
log = logging.FileHandler(f"{folder}/{rank}.log", delay=True)
logging.getLogger().addHandler(logging.handlers.MemoryHandler(9, target=log))
logging.warning("kept in memory")
scratch = tempfile.TemporaryDirectory(prefix=f"scratch {rank} ", dir=folder)
if way == "interrupt":
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
if rank == culprit:
    if way == "exit":
        sys.exit(7)
    if way == "hang":
        atexit.register(time.sleep, 600)
    raise ValueError("bad batch")
if way == "wait":
    multihost_utils.sync_global_devices("never")

"""Kill the rank that compiles first, or let its compiler fail, as argv says."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.lib import xla_client

jax.config.update("jax_enable_recoverability", True)
jax.distributed.initialize()
way, started = sys.argv[1], Path(sys.argv[2])
real = xla_client.Client.compile_and_load


def compile_and_load(*args: Any, **more: Any) -> Any:
    try:
        started.touch(exist_ok=False)
    except FileExistsError:
        return real(*args, **more)
    if way == "killed":
        print("compiles", os.getpid(), flush=True)
        signal.pause()
    raise RuntimeError("no compiler")


step = jax.jit(lambda x: x @ x.T)
data = np.ones((4, 4), np.float32)
if jax.process_index() == 0:  # which has to stay
    while not started.exists():
        time.sleep(0.01)
xla_client.Client.compile_and_load = compile_and_load
print("result", float(step(data)[0, 0]), flush=True)

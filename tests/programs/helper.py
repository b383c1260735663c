"""Kill a helper process in the middle of a compilation; then all is quiet."""

import subprocess
import sys
import time

import jax

LONG = """
import jax, jax.numpy as jnp, numpy as np
def long(x):
    for n in range(3000):
        x = jnp.sin(x * n).at[n % 400].set(jnp.cos(x[n % 7]))
        if n == 0:
            print("begun", flush=True)
    return x
jax.jit(lambda x: x + 1)(1.0)
print("compiled", flush=True)
jax.jit(long)(np.ones((400, 400)))
"""

jax.distributed.initialize()
command = [sys.executable, "-c", LONG]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as helper:
    assert helper.stdout is not None
    while helper.stdout.readline() != "begun\n":
        pass
    time.sleep(4)  # traced by then: XLA compiles for long
    helper.kill()
print("the helper is gone", flush=True)
time.sleep(1000)

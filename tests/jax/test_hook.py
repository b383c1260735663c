"""The hook and the functions of real JAX that it replaces."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from jobs import Jobs

# Join the job, leave it, and join it again.
AGAIN = """
import os, sys, time, jax
rank, folder = sys.argv[1:]
for turn in range(3):
    jax.distributed.initialize()
    print(jax.distributed.is_initialized())
    jax.distributed.shutdown()
    print(jax.distributed.is_initialized())
    closed = os.path.join(folder, str(turn))  # the coordinator, which the next one replaces
    if rank == '0':
        open(closed, 'x').close()
    while not os.path.exists(closed):
        time.sleep(0.01)
"""

# On a busy machine a process of jax 0.6 may ask a coordinator that has just been closed, and abort.
POLLED_TOO_LONG = "Polled an error from coordination service"


@pytest.mark.every_jax
@pytest.mark.timeout(240)
def test_job_may_be_joined_again(jobs: Jobs, tmp_path: Path) -> None:
    words = ["-n", 2, "--no-prefix", sys.executable, "-c", AGAIN, "{process_id}"]
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        ended = jobs.run(*words, folder, limit=180)
        if not (version("jax").startswith("0.6.") and POLLED_TOO_LONG in ended.stderr):
            break
    assert ended.status == 0, ended.stderr
    assert (ended.stdout.count("True"), ended.stdout.count("False")) == (6, 6)
    assert ended.report == ""


# What JAX's functions look like.
LOOKING = """
import copy, inspect, pickle
import jax
import jax._src.distributed as inner
from jax._src import compiler
from jax._src.interpreters import pxla
functions = [jax.distributed.initialize, jax.distributed.shutdown]
functions += [f for f in [getattr(compiler, "compile_or_get_cached", None)] if f]
for f in [*functions, pxla.ExecuteReplicated.__call__]:
    print(f.__name__, f.__qualname__, f.__module__, inspect.signature(f), inspect.getdoc(f))
    print(inspect.getsourcelines(f)[1])
for f in functions:
    print(inspect.getfullargspec(f).args, pickle.loads(pickle.dumps(f)) is f, copy.deepcopy(f) is f)
print(jax.distributed.initialize is inner.initialize, jax.distributed.shutdown is inner.shutdown)
"""


@pytest.mark.every_jax
def test_hook_leaves_no_trace_in_jax(jobs: Jobs) -> None:
    words = [sys.executable, "-c", LOOKING]
    alone = subprocess.run(words, capture_output=True, text=True, check=True)
    assert jobs.run("--no-prefix", *words).stdout == alone.stdout

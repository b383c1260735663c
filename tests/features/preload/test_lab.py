"""--preload on real hosts over real ssh: imported once on each, in each attempt."""

from pathlib import Path

import pytest
from jobs import Jobs
from remote import Lab, needs_lab

pytestmark = needs_lab
# Fails in the first attempt, once all ranks have come together.
PROGRAM = """
import os
import sys
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
attempt = int(os.environ["MCJAX_RESTART"])
ranks = int(process_allgather(jax.process_index()).size)
print("attempt", attempt, "of", ranks, flush=True)
jax.distributed.shutdown()
sys.exit(attempt < 1)
"""


@pytest.mark.jax
def test_the_ranks_of_each_attempt_are_forked(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    restarts = ["--max-restarts", 1, "--grace", "9s"]
    words = ["-v", "-d", 1, "--preload", "jax", *restarts, "--sync", program, program]
    ended = lab.run(jobs, "jh1:2,jh2:2", *words)
    assert ended.status == 0, ended.stderr
    assert ended.report.count("forked after importing jax in") == 4
    assert sum("attempt" in line for line in ended.stdout.splitlines()) == 8

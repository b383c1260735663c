"""--preload on real hosts over real ssh: imported once on each, for all attempts."""

from pathlib import Path

import pytest
from jobs import Jobs, eventually
from remote import Lab, needs_lab

pytestmark = needs_lab
# Fails in as many attempts as it is told, once all ranks have come together.
PROGRAM = """
import os
import sys
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
attempt = int(os.environ["MCJAX_RESTART"])
ranks = int(process_allgather(jax.process_index()).size)
print("attempt", attempt, "of", ranks, "below", os.getppid(), flush=True)
jax.distributed.shutdown()
sys.exit(attempt < int(sys.argv[1]))
"""


def words(folder: Path, failures: int, *more: object) -> list[object]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    restarts = ["--max-restarts", 4, "--grace", "9s"]
    return [
        "-v",
        "-d",
        1,
        "--preload",
        "jax",
        *restarts,
        "--sync",
        program,
        *more,
        program,
        failures,
    ]


@pytest.mark.jax
def test_all_attempts_are_forked_from_one_import(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    ended = lab.run(jobs, "jh1:2,jh2:2", *words(tmp_path, 1))
    assert ended.status == 0, ended.stderr
    assert ended.report.count("forked after importing jax in") == 2
    assert ended.report.count("forked from what an earlier attempt has imported") == 2
    lines = [line.split() for line in ended.stdout.splitlines() if "attempt" in line]
    assert len(lines) == 8
    agents = {(line[1], line[-1]) for line in lines}
    assert len(agents) == 2  # one a host, for both attempts


@pytest.mark.jax
def test_a_host_that_is_cut_off_between_two_attempts(jobs: Jobs, lab: Lab, tmp_path: Path) -> None:
    running = lab.start(jobs, "jh1,jh3", *words(tmp_path, 3, "--min-hosts", 1))
    try:
        running.read_until("attempt 2", 2)  # after which there are 4 s
        eventually(lambda: sum("python /tmp" in line for line in lab.processes("jh3")) == 1)
        lab.do("cut", "jh3")
        ended = running.finish()
    finally:
        lab.do("restore", "jh3")
    assert ended.status == 0, ended.stderr
    assert "--min-hosts: going on without host jh3: 1 rank on 1 host" in ended.report
    assert " of 1 below" in ended.stdout
    eventually(lambda: not lab.processes("jh3"))
    lab.check_clean()

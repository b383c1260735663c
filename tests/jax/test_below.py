"""Processes that ranks start call initialize() again, and have their work done."""

import pytest
from jobs import PROGRAMS, Jobs

CALL = next(
    number
    for number, line in enumerate((PROGRAMS / "below.py").read_text().splitlines(), 1)
    if line == "jax.distributed.initialize()"
)


@pytest.mark.every_jax
def test_initialize_below_a_rank_is_not_counted(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "below.py", cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("loaded [0, 1, 4]") == ended.stdout.count("sum 1") == 2
    said = (
        f"rank {{}} started a process that called initialize() again at below.py:{CALL}; it is not a "
        'rank, so the call was skipped: put the call under `if __name__ == "__main__":`'
    )
    assert ended.report in (said.format(0), said.format(1))

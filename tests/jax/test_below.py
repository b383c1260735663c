"""Processes that ranks start call initialize() again, and have their work done."""

import pytest
from jobs import PROGRAMS, Jobs

CALL = next(
    number
    for number, line in enumerate((PROGRAMS / "below.py").read_text().splitlines(), 1)
    if line == "jax.distributed.initialize()"
)
GUARD = 'put the call under `if __name__ == "__main__":`'
DONE = "loaded [0, 1, 4]"


@pytest.mark.every_jax
@pytest.mark.parametrize(("way", "said", "cure"), [
    ("spawn", DONE, GUARD),
    ("before", DONE, GUARD),
    ("program", "ended", "call it in the rank's own process alone"),
])  # fmt: skip
def test_initialize_below_a_rank_is_not_counted(jobs: Jobs, way: str, said: str, cure: str) -> None:
    ended = jobs.run("-n", 2, "-d", 1, "below.py", way, cwd=PROGRAMS)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count(said) == ended.stdout.count("sum 1") == 2
    assert ended.report == (
        f"ranks 0-1 started processes that called initialize() again at below.py:{CALL}; they are "
        f"not ranks, so the call was skipped: {cure}"
    )

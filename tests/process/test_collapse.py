"""Equal lines of several ranks, shown once."""

import signal
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from shown import check_whole

pytestmark = pytest.mark.quick


def test_equal_lines_of_ranks_are_collapsed(jobs: Jobs) -> None:
    program = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready', sys.argv[1], flush=True)
signal.sigwait([signal.SIGUSR1])
print('same', 'only ' + sys.argv[1], 'same again', 'end', sep='\\n', end='')
print('err', file=sys.stderr)
"""
    command = [sys.executable, "-c", program, "{process_id}"]
    running = jobs.start("-n", 4, "--collapse", "always", *command)
    running.read_until("ready", 4)
    running.out = b""
    running.signal(signal.SIGUSR1)
    ended = running.finish()
    out = ended.stdout.splitlines()
    assert [line for line in out if "only" not in line] == [
        "[0-3] same",
        "[0-3] same again",
        "[0-3] end",
    ]
    assert sorted(line for line in out if "only" in line) == [f"[{n}] only {n}" for n in range(4)]
    assert ended.stderr == "[0-3] err\n"


PAIRS = ("0-1", "0,2", "1-2")


def test_flood_of_output_is_complete(jobs: Jobs, tmp_path: Path) -> None:
    written = [str(n) for n in range(1, 20_001)]
    ended = jobs.run("-n", 3, "--collapse", "--log-dir", tmp_path, "seq", len(written))
    seen = [line.split() for line in ended.stdout.splitlines()]
    for rank in range(3):
        prefixes = [f"[{rank}]", "[0-2]", *(f"[{two}]" for two in PAIRS if str(rank) in two)]
        check_whole([text for ranks, text in seen if ranks in prefixes], written)
        assert (tmp_path / f"{rank}.out").read_text().splitlines() == written

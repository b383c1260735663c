"""Equal lines of several ranks, shown once."""

import signal
import sys

import pytest
from jobs import Jobs

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

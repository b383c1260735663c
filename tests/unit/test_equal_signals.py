"""No test sends a signal twice in a row, which may reach a process as one: see Running.kill_now()."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
IN_A_ROW = re.compile(r"^ *(\w+\.(?:signal|send_signal)\([\w.]+\))\n *\1$", re.MULTILINE)


def test_no_signal_is_sent_twice_in_a_row() -> None:
    twice = [path.name for path in TESTS.rglob("*.py") if IN_A_ROW.search(path.read_text())]
    assert twice == []
    assert IN_A_ROW.search("    running.signal(SIGINT)\n    running.signal(SIGINT)\n")

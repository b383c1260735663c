"""What a launcher in somebody else's process hears of its children."""

import os
import signal
import time

import pytest

from mcjax_launch.api.embedded import Embedded


@pytest.mark.parametrize("can_wait", [True, False])
def test_an_end_that_is_told_too_early(monkeypatch: pytest.MonkeyPatch, can_wait: bool) -> None:
    """Where nothing waits without reaping, the launcher looks more than once."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    if not can_wait:
        monkeypatch.delattr(os, "waitid")
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], os.environ)
    front = Embedded(None)
    front._tell_of_end(child)
    assert front.signals.read() == [signal.SIGCHLD] * (1 if can_wait else 4)
    assert sum(pauses) == (0 if can_wait else pytest.approx(1.11))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    front.close()

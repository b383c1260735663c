"""What a launcher in somebody else's process hears of its children."""

import os
import signal

import pytest

from mcjax_launch.api import embedded
from mcjax_launch.api.embedded import Embedded


@pytest.mark.parametrize("can_wait", [True, False])
def test_an_end(monkeypatch: pytest.MonkeyPatch, can_wait: bool) -> None:
    """Where nothing waits without reaping, the launcher looks again and again until its own end."""
    front = Embedded(None)
    told = []

    def put(signum: int) -> None:
        told.append(signum)
        front._closed = len(told) == 4

    monkeypatch.setattr(front, "put", put)
    monkeypatch.setattr(embedded, "_LOOK_S", 0)
    if not can_wait:
        monkeypatch.delattr(os, "waitid")
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], os.environ)
    front._tell_of_end(child)
    assert told == [signal.SIGCHLD] * (1 if can_wait else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    front._closed = False
    front.close()

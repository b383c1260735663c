"""Terminals that are attached to a detached job, as its launcher serves them."""

from pathlib import Path

import pytest

from mcjax_launch.detached.connection import Connection
from mcjax_launch.detached.messages import DiskFull, MoreOutput, StatusText, Visit
from mcjax_launch.detached.visitors import Visitors, VisitorStatus
from mcjax_launch.machine.loop import Loop


class Row:
    """An attempt's status row on a visitor's terminal, which is always due."""

    deadline = 0.0

    def __init__(self, status: VisitorStatus, text: str) -> None:
        self._status, self._text = status, text

    def expire(self, now: float) -> None:
        self._status.say(self._text, now)


def test_terminal_shows_the_status_of_each_attempt(tmp_path: Path) -> None:
    loop = Loop()
    visitors = Visitors(str(tmp_path), loop, lambda: pytest.fail("nobody stops the job"))
    connection = Connection(str(tmp_path))
    connection.send(Visit("line", 24))
    for attempt in ("first", "second"):
        visitors.serve(lambda status: Row(status, attempt), lambda: None)  # noqa: B023
        while visitors.deadline is None:  # the visit is yet to be read
            loop.dispatch_ready(None)
        visitors.expire(0.0)
        assert connection.receive() == [StatusText(attempt)]
    connection.close()
    visitors.close()


def test_what_the_launcher_sends_does_not_end_a_wait(tmp_path: Path) -> None:
    loop = Loop()
    visitors = Visitors(str(tmp_path), loop, lambda: pytest.fail("nobody stops the job"))
    connection, terminal = Connection(str(tmp_path)), Connection(str(tmp_path))
    terminal.send(Visit("", 24))
    loop.dispatch_ready(None)
    loop.dispatch_ready(None)
    visitors.notify_of_output()
    assert terminal.receive() == [MoreOutput()]
    assert not connection.wait_for_end(0.05)
    visitors.close()
    assert connection.wait_for_end(None)
    connection.close()
    terminal.close()


def test_terminal_that_reads_nothing_is_told_of_output_once(tmp_path: Path) -> None:
    loop = Loop()
    visitors = Visitors(str(tmp_path), loop, lambda: pytest.fail("nobody stops the job"))
    connection = Connection(str(tmp_path))
    loop.dispatch_ready(None)
    most = 20_000
    for _ in range(most):
        visitors.notify_of_output()
    visitors.notify_of_disk(is_full=True)
    said: list[object] = []
    while DiskFull(True) not in said:
        said += connection.receive() or ()
        loop.dispatch_ready(0.0)
    assert 0 < said.count(MoreOutput()) < most
    connection.close()
    visitors.close()

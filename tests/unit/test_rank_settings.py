"""What a rank's process does to itself before its program begins."""

import os
import signal

import pytest

from mcjax_launch.wire.rank_process import die_with_parent


def test_rank_whose_parent_ended_before_the_kernel_was_asked_kills_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, ...]] = []
    killed: list[tuple[int, int]] = []

    def prctl(*arguments: int) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr(os, "kill", lambda pid, signum: killed.append((pid, signum)))
    die_with_parent(os.getppid(), prctl)
    assert killed == []
    die_with_parent(os.getpid(), prctl)  # which is not this process's parent
    monkeypatch.undo()
    assert killed == [(os.getpid(), signal.SIGKILL)]
    assert asked == [(1, signal.SIGKILL, 0, 0, 0)] * 2

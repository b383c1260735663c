"""The process above an agent."""

import os
import signal
from pathlib import Path

import pytest

from mcjax_launch.agent import main

pytestmark = pytest.mark.only_linux("the guardian's system is made up, but not its signals")


class _Stuck:
    """A system with a process that nothing ends, as one that waits for a lost disk."""

    def adopt_orphans(self, folder: str) -> None:
        pass

    def find_ended_child(self) -> None:
        return None

    def list_descendants(self) -> list[int]:
        return []

    def wait_for_child(self) -> None:
        signal.pause()


def test_guardian_gives_up_eventually(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(main, "system", _Stuck())
    monkeypatch.setattr(main, "_PATIENCE_S", 1)
    folder = tmp_path / "private"
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        agent = os.fork()
        if agent == 0:
            os._exit(7)
        try:
            main.guard(agent, str(folder))
        finally:
            os._exit(1)
    signal.signal(signal.SIGALRM, lambda signum, frame: os.kill(pid, signal.SIGKILL))
    signal.alarm(30)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    finally:
        signal.alarm(0)
    assert not folder.exists()

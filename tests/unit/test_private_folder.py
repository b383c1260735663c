"""The job's private folder is removed, whatever a rank has left in it."""

import os
import stat
from pathlib import Path

import pytest

from mcjax_launch.agent import private_folder, supervisor
from mcjax_launch.agent.agent import Agent
from mcjax_launch.features.compile_once.messages import ShareCompiled
from mcjax_launch.machine.loop import Loop
from mcjax_launch.machine.uplink import Uplink
from mcjax_launch.wire import frames


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return private_folder.make()


def test_private_folder_is_private_and_removed(folder: str) -> None:
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    os.mkfifo(os.path.join(folder, "fifo"))
    os.symlink("/etc", os.path.join(folder, "link"))
    os.makedirs(os.path.join(folder, "a", "b", "c"))
    assert private_folder.remove(folder) == ""
    assert not os.path.exists(folder) and os.path.isdir("/etc")


def test_order_that_comes_during_the_removal_makes_no_folder(folder: str) -> None:
    """As when the guardian is killed before the ranks are started."""
    fds = control, orders, _, uplink = *os.pipe(), *os.pipe()
    loop = Loop()
    agent = Agent(control, Uplink(uplink, loop), loop, folder, "", False, None)
    agent.link.open()
    os.write(orders, frames.encode_message(ShareCompiled("auto", "", 0)))
    agent._perform([supervisor.Leave(unkillable=False)])
    assert agent._try_finish()
    left = os.path.exists(folder)
    agent.hooks.close()
    loop.close()
    for fd in fds:
        os.close(fd)
    assert not left


def test_files_that_cannot_be_removed_are_named(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(folder, "kept").touch()
    unlink = os.unlink

    def refuse(path: str) -> None:
        if path.endswith("kept"):
            raise PermissionError(1, "Operation not permitted")
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)
    assert private_folder.remove(folder) == f"{folder}/kept: Operation not permitted"
    monkeypatch.undo()
    assert private_folder.remove(folder) == ""


def test_removal_yields_between_folders(folder: str) -> None:
    for name in "abc":
        os.makedirs(os.path.join(folder, name))
    calls: list[int] = []
    private_folder.remove(folder, lambda: calls.append(1))
    assert len(calls) == 4


def test_missing_folder_is_no_error_on_removal(folder: str) -> None:
    os.rmdir(folder)
    assert private_folder.remove(folder) == ""

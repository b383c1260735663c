"""The job's private folder is removed, whatever a rank has left in it."""

import os
import stat
from pathlib import Path

import pytest

from mcjax_launch.kernel.agent import private_folder


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


def test_folder_removed_by_a_cleaner_is_made_again(folder: str) -> None:
    os.rmdir(folder)
    private_folder.clear(folder)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700

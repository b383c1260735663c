"""The socket of a detached job's launcher, in a folder whose path may be long."""

import os
import stat
from pathlib import Path

import pytest

from mcjax_launch.detached import address
from mcjax_launch.machine import system


@pytest.mark.parametrize("length", [1, 150] if system.LINUX else [1])
def test_terminals_reach_the_launcher_however_long_the_path_is(tmp_path: Path, length: int) -> None:
    folder = tmp_path / ("x" * length)
    folder.mkdir()
    listener = address.listen(str(folder))
    assert stat.S_IMODE((folder / "socket").stat().st_mode) == 0o600
    connection = address.connect(str(folder))
    accepted, _ = listener.accept()
    assert address.is_own(accepted)
    connection.sendall(b"hello")
    assert accepted.recv(10) == b"hello"
    for opened in (listener, connection, accepted):
        opened.close()


def test_folder_without_a_launcher_refuses_connections(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        address.connect(str(tmp_path))
    address.listen(str(tmp_path)).close()
    with pytest.raises(ConnectionRefusedError):
        address.connect(str(tmp_path))


def test_another_users_launcher_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = address.listen(str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PermissionError, match="another user's process listens there"):
        address.connect(str(tmp_path))
    listener.close()

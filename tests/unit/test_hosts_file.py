"""What --hosts reads: files, pipes, and what is neither."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.request import hosts


def test_hosts_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes("\ufeffa\nb # é".encode() + b"\xe4\n")
    assert hosts.read_file(str(file)) == "a\nb # é\udce4\n"


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "endless": (lambda path: path.symlink_to("/dev/zero"), "more than 16 MiB: not a hosts file"),
    "UTF-16": (
        lambda path: path.write_text("a", "utf-16"),
        "is encoded in UTF-16; save it as UTF-8",
    ),
    "a named pipe": (os.mkfifo, "is a named pipe; write --hosts <(command) or --hosts -"),
    "not there": (lambda path: None, "No such file or directory"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_hosts_file_is_refused(name: str, tmp_path: Path) -> None:
    make, why = UNREADABLE[name]
    path = tmp_path / "hosts"
    make(path)
    with pytest.raises(LaunchError) as caught:
        hosts.read_file(str(path))
    assert str(caught.value) == f"--hosts {path}: {why}"

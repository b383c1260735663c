"""What --hosts reads: files, pipes, and what is neither."""

import os
import threading
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options
from mcjax_launch.request import hosts, text_files


def test_hosts_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes("\ufeffa\nb # é".encode() + b"\xe4\n")
    assert text_files.read_file(str(file), "--hosts") == "a\nb # é\udce4\n"


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


def test_slow_pipe_is_read_to_its_end(fifo: str) -> None:
    went_on = threading.Event()

    def write() -> None:
        with open(fifo, "wb", buffering=0) as pipe:
            pipe.write(b"a\n")
            went_on.wait(10)
            pipe.write(b"b\n")

    writer = threading.Thread(target=write)
    writer.start()
    threading.Timer(0.1, went_on.set).start()
    assert text_files.read_file(fifo, "--hosts") == "a\nb\n"
    writer.join()


def test_pipe_without_writer_is_refused(fifo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_WRITER_S", 0.05)
    with pytest.raises(LaunchError, match=f"^--hosts {fifo}: no process writes to this pipe$"):
        text_files.read_file(fifo, "--hosts")


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "endless": (lambda path: path.symlink_to("/dev/zero"), "more than 16 MiB: another file?"),
    "UTF-16": (
        lambda path: path.write_text("a", "utf-16"),
        "is encoded in UTF-16; save it as UTF-8",
    ),
    "UTF-16 of another order": (
        lambda path: path.write_bytes("\ufeffa".encode("utf-16-be")),
        "is encoded in UTF-16; save it as UTF-8",
    ),
    "not there": (lambda path: None, "No such file or directory"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_hosts_file_is_refused(name: str, tmp_path: Path) -> None:
    make, why = UNREADABLE[name]
    path = tmp_path / "hosts"
    make(path)
    with pytest.raises(LaunchError) as caught:
        text_files.read_file(str(path), "--hosts")
    assert str(caught.value) == f"--hosts {path}: {why}"


def test_own_name_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    own = types.SimpleNamespace(nodename="ws7.lab.org")
    monkeypatch.setattr(os, "uname", lambda: own)
    names = "WS7,ws7.lab.org,me@ws7,ws8,ws7.other.org"
    found = hosts.find_hosts(Options(hosts=names), {})
    assert [host.is_local for host in found] == [True, True, False, False, False]
    found = hosts.find_hosts(Options(hosts=names, via="ssh"), {})
    assert not any(host.is_local for host in found)

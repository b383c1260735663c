"""The tee: log files to the byte, and the last bytes in memory."""

import os
from pathlib import Path

import pytest

from mcjax_launch.console.log_files import LogFiles, remove_leftovers
from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.errors import LaunchError
from mcjax_launch.wire.frames import STDERR, STDOUT


def opened(folder: Path, ranks: int = 1, *, append: bool = False) -> tuple[LogFiles, list[str]]:
    lost: list[str] = []
    logs = LogFiles(lost.append)
    logs.open([RankLabel(rank, folder=str(folder)) for rank in range(ranks)], append=append)
    return logs, lost


def test_each_stream_has_its_file(tmp_path: Path) -> None:
    logs, lost = opened(tmp_path / "new" / "folder", 2)
    logs.feed(0, STDOUT, b"\xff\r\nno")
    logs.feed(0, STDERR, b"err\n")
    logs.feed(0, STDOUT, b" end")
    logs.close()
    names = ("0.out", "0.err", "1.out", "1.err")
    contents = [(tmp_path / "new" / "folder" / name).read_bytes() for name in names]
    assert contents == [b"\xff\r\nno end", b"err\n", b"", b""]
    assert lost == []


@pytest.mark.parametrize(("append", "content"), [(False, b"new\n"), (True, b"old\nnew\n")])
def test_restart_appends_to_log_files(tmp_path: Path, append: bool, content: bytes) -> None:
    (tmp_path / "0.out").write_bytes(b"old\n")
    logs, _ = opened(tmp_path, append=append)
    logs.feed(0, STDOUT, b"new\n")
    logs.close()
    assert (tmp_path / "0.out").read_bytes() == content


def test_a_rank_without_a_folder_has_no_files() -> None:
    logs = LogFiles(lambda text: pytest.fail(text))
    logs.open([RankLabel(0)], append=False)
    logs.feed(0, STDOUT, b"x\n")
    logs.close()


def test_log_file_that_cannot_be_opened_is_an_error() -> None:
    with pytest.raises(LaunchError, match=r"--log-dir: /dev/null/logs/0\.out: Not a directory"):
        opened(Path("/dev/null/logs"))


def test_full_disk_ends_one_log_only(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / "0.out")
    logs, lost = opened(tmp_path)
    for _ in range(3):
        logs.feed(0, STDOUT, b"x\n")
        logs.feed(0, STDERR, b"y\n")
    logs.close()
    assert lost == [
        "rank 0: log file incomplete from here (No space left on device); the job continues"
    ]
    assert (tmp_path / "0.err").read_bytes() == b"y\n" * 3


@pytest.mark.parametrize("is_read", [False, True])
def test_a_fifo_is_no_log_file(tmp_path: Path, is_read: bool) -> None:
    """Opening it would wait for its reader, and writing as well."""
    os.mkfifo(tmp_path / "0.out")
    reader = os.open(tmp_path / "0.out", os.O_RDONLY | os.O_NONBLOCK) if is_read else None
    with pytest.raises(LaunchError, match=r"0\.out: a FIFO or socket, not a file"):
        opened(tmp_path)
    if reader is not None:
        os.close(reader)


def test_log_files_of_a_running_job_are_not_removed_as_leftovers(tmp_path: Path) -> None:
    """Those of ranks 1 and 2 are an ended job's, those of rank 3 another job's that runs."""
    for rank in range(5):
        for end in ("out", "err"):
            (tmp_path / f"{rank}.{end}").touch()
    running = LogFiles(lambda line: None)
    running.open([RankLabel(3, folder=str(tmp_path))], append=True)
    remove_leftovers([RankLabel(0, folder=str(tmp_path))], 1)
    running.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("0.err", "0.out", "3.err", "3.out", "4.err", "4.out")
    ]

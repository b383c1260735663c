"""The files with a detached job's events: their bound, a full disk, and who reads them meanwhile."""

import os
from pathlib import Path

import pytest

from mcjax_launch.detached import event_files
from mcjax_launch.detached.event_files import EventFiles, EventReader, list_file_numbers

MOST = 8 * 1000


def line(number: int) -> bytes:
    return b"%06d %s\n" % (number, b"x" * 42)


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture
def full() -> list[bool]:
    """What the files have said of the disk."""
    return []


@pytest.fixture
def files(tmp_path: Path, full: list[bool]) -> EventFiles:
    return EventFiles(str(tmp_path), full.append, MOST)


def test_the_oldest_whole_lines_are_dropped_first(tmp_path: Path, files: EventFiles) -> None:
    files.head = b"head\n"
    for number in range(1000):
        files.write((line(number),))
        assert held(tmp_path) <= MOST + 100
    files.close()
    read = list(EventReader(str(tmp_path)).read())
    events = [text for text in read if text != b"head"]
    assert [int(text[:6]) for text in events] == list(range(1000 - len(events), 1000))
    assert len(events) * len(line(0)) > MOST * 3 // 4
    assert read.count(b"head") == len(list_file_numbers(str(tmp_path)))
    assert read[0] == b"head"


def test_line_longer_than_a_file_has_its_own_file(tmp_path: Path, files: EventFiles) -> None:
    for text in (line(0), b"y" * 5000 + b"\n", line(1)):
        files.write((text,))
    assert [len(text) for text in EventReader(str(tmp_path)).read()] == [49, 5000, 49]
    files.close()


def test_a_reader_follows_from_file_to_file(tmp_path: Path, files: EventFiles) -> None:
    reader = EventReader(str(tmp_path))
    assert list(reader.read()) == []
    for number in range(100):
        files.write((line(number),))
        if number % 7 == 0:
            read = list(reader.read())
            assert read[-1] + b"\n" == line(number)
    assert not reader.skipped
    for number in range(100, 500):
        files.write((line(number),))
    assert list(reader.read())[-1] + b"\n" == line(499)
    assert reader.skipped
    reader.close()
    files.close()


def test_tail_reads_only_the_last_files(tmp_path: Path, files: EventFiles) -> None:
    for number in range(400):
        files.write((line(number),))
    reader = EventReader(str(tmp_path))
    reader.skip_to_tail(100)
    read = list(reader.read())
    assert read[-1] + b"\n" == line(399) and len(read) < 50
    reader.close()
    files.close()


def test_a_full_disk_drops_lines_says_so_and_is_tried_again(
    tmp_path: Path, files: EventFiles, full: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 500
    write = os.write

    def limited(fd: int, text: bytes) -> int:
        if held(tmp_path) >= room:
            raise OSError(28, "No space left on device")
        return write(fd, text[: room - held(tmp_path)])

    monkeypatch.setattr(os, "write", limited)
    monkeypatch.setattr(event_files, "_RETRY_BYTES", 200)
    for number in range(20):
        files.write((line(number),))
    assert full == [True] and files.lost == 10 * len(line(0))
    assert held(tmp_path) == 10 * len(line(0))  # and no part of a line
    room = 100_000
    for number in range(20, 30):
        files.write((line(number),))
    assert full == [True, False]
    read = [int(text[:6]) for text in EventReader(str(tmp_path)).read()]
    assert read[:10] == list(range(10)) and read[-1] == 29
    files.close()


def test_full_disk_removes_the_oldest_file_first(
    tmp_path: Path, files: EventFiles, full: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 3000
    write = os.write

    def limited(fd: int, text: bytes) -> int:
        if held(tmp_path) + len(text) > room:
            raise OSError(28, "No space left on device")
        return write(fd, text)

    monkeypatch.setattr(os, "write", limited)
    for number in range(200):
        files.write((line(number),))
    assert full == []
    assert [int(text[:6]) for text in EventReader(str(tmp_path)).read()][-1] == 199
    files.close()


def test_removed_folder_does_not_end_the_job(tmp_path: Path, full: list[bool]) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    files = EventFiles(str(folder), full.append, MOST)
    files.write((line(0),))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    for number in range(500):
        files.write((line(number),))
    files.close()

"""The files with a detached job's output: their bound, a full disk, and who reads them meanwhile."""

import os
from pathlib import Path

import pytest

from mcjax_launch.detached import output_files
from mcjax_launch.detached.output_files import OutputFiles, OutputReader, list_file_numbers

MOST = 8 * 1000


def line(number: int) -> bytes:
    return b"%06d %s\n" % (number, b"x" * 42)


def read_lines(reader: OutputReader) -> list[bytes]:
    """All whole lines up to the end."""
    return b"".join(iter(reader.read, b"")).splitlines()


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture
def full() -> list[bool]:
    """What the files have said of the disk."""
    return []


@pytest.fixture
def files(tmp_path: Path, full: list[bool]) -> OutputFiles:
    return OutputFiles(str(tmp_path), full.append, MOST)


def test_the_oldest_whole_lines_are_dropped_first(tmp_path: Path, files: OutputFiles) -> None:
    for number in range(1000):
        files.write((line(number),))
        assert held(tmp_path) <= MOST + 100
    files.close()
    read = read_lines(OutputReader(str(tmp_path)))
    assert [int(text[:6]) for text in read] == list(range(1000 - len(read), 1000))
    assert len(read) * len(line(0)) > MOST * 3 // 4


def test_pieces_of_a_line_stay_together(tmp_path: Path, files: OutputFiles) -> None:
    for number in range(999):
        whole = line(number)[1:]  # so that no file ends at the end of a line by itself
        files.write((whole[:20],))
        files.write((whole[20:],))
    files.close()
    for number in list_file_numbers(str(tmp_path)):
        text = Path(output_files.get_file_path(str(tmp_path), number)).read_bytes()
        assert text.endswith(b"\n") and all(len(each) == 48 for each in text.splitlines())


def test_line_without_an_end_does_not_fill_the_disk(tmp_path: Path, files: OutputFiles) -> None:
    for _ in range(1000):
        files.write((b"\r 10 % of a bar" * 10,))
        assert held(tmp_path) <= 3 * MOST
    files.close()


def test_line_longer_than_a_file_has_its_own_file(tmp_path: Path, files: OutputFiles) -> None:
    for text in (line(0), b"y" * 5000 + b"\n", line(1)):
        files.write((text,))
    assert [len(text) for text in read_lines(OutputReader(str(tmp_path)))] == [49, 5000, 49]
    files.close()


def test_a_reader_follows_from_file_to_file(tmp_path: Path, files: OutputFiles) -> None:
    reader = OutputReader(str(tmp_path))
    assert read_lines(reader) == []
    for number in range(100):
        files.write((line(number),))
        if number % 7 == 0:
            read = read_lines(reader)
            assert read[-1] + b"\n" == line(number)
    assert not reader.skipped
    for number in range(100, 500):
        files.write((line(number),))
    assert read_lines(reader)[-1] + b"\n" == line(499)
    assert reader.skipped
    reader.close()
    files.close()


def test_output_that_comes_just_before_the_next_file_is_read(
    tmp_path: Path, files: OutputFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, late = OutputReader(str(tmp_path)), [range(1, 100)]
    files.write((line(0),))
    assert reader.read() == line(0)

    def list_late(folder: str) -> list[int]:
        for number in late.pop() if late else ():  # the reader has come to the end of its file
            files.write((line(number),))
        return list_file_numbers(folder)

    monkeypatch.setattr(output_files, "list_file_numbers", list_late)
    assert [int(text[:6]) for text in read_lines(reader)] == list(range(1, 100))
    assert late == []
    reader.close()
    files.close()


def test_stderr_follows_into_the_next_file(tmp_path: Path, files: OutputFiles) -> None:
    stderr = os.dup(2)
    try:
        files.redirect_stderr()
        for number in range(500):
            files.write((line(number),))
        os.write(2, b"Traceback\n")
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    assert read_lines(OutputReader(str(tmp_path)))[-1] == b"Traceback"
    files.close()


def test_tail_reads_only_the_last_files(tmp_path: Path, files: OutputFiles) -> None:
    for number in range(400):
        files.write((line(number),))
    reader = OutputReader(str(tmp_path))
    reader.skip_to_tail(100)
    read = read_lines(reader)
    assert read[-1] + b"\n" == line(399) and len(read) < 50
    reader.close()
    files.close()


def test_a_full_disk_drops_lines_says_so_and_is_tried_again(
    tmp_path: Path, files: OutputFiles, full: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 520  # a part of a line fits, too
    write = os.write

    def limited(fd: int, text: bytes) -> int:
        if held(tmp_path) >= room:
            raise OSError(28, "No space left on device")
        return write(fd, text[: room - held(tmp_path)])

    monkeypatch.setattr(os, "write", limited)
    monkeypatch.setattr(output_files, "_RETRY_BYTES", 200)
    for number in range(20):
        files.write((line(number),))
    assert full == [True] and files.lost == 10 * len(line(0))
    assert held(tmp_path) == 10 * len(line(0))  # and no part of a line
    room = 100_000
    for number in range(20, 30):
        files.write((line(number),))
    assert full == [True, False]
    read = read_lines(OutputReader(str(tmp_path)))
    kept = [int(text[:6]) for text in read if text[:1] == b"0"]
    assert kept[:10] == list(range(10)) and kept[-1] == 29
    assert (
        read[10] == b"mcjax-launch: the disk was full: %d bytes of output are not kept" % files.lost
    )
    assert len(kept) * len(line(0)) + files.lost == 30 * len(line(0))
    files.close()


def test_full_disk_removes_the_oldest_file_first(
    tmp_path: Path, files: OutputFiles, full: list[bool], monkeypatch: pytest.MonkeyPatch
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
    assert int(read_lines(OutputReader(str(tmp_path)))[-1][:6]) == 199
    files.close()


def test_removed_folder_does_not_end_the_job(tmp_path: Path, full: list[bool]) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    files = OutputFiles(str(folder), full.append, MOST)
    files.write((line(0),))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    for number in range(500):
        files.write((line(number),))
    files.close()

"""What the launcher sends of --sync's files to hosts that keep some of them."""

import os
from pathlib import Path

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.transport import staging
from mcjax_launch.transport.staging import StagedContent, list_entries
from mcjax_launch.wire.checksum import compute
from mcjax_launch.wire.compression import expand
from mcjax_launch.wire.frames import Decoder, Raw
from mcjax_launch.wire.messages import Compressed, StageEntries, StageEntry

LONG = bytes(range(256)) * 1024


class Staged:
    """A folder's content, as a host gets it."""

    def __init__(self, folder: Path) -> None:
        self.notes: list[str] = []
        self._content = StagedContent((".",), str(folder), keeps=True, note=self.notes.append)
        self._decoder = Decoder()

    def list(self) -> dict[str, StageEntry]:
        """The entries by their paths, as the host gets them first."""
        *_, packed = self._content.iterate_frames()
        [message] = self._decoder.feed(packed)
        assert isinstance(message, Compressed)
        listed = expand(message)
        assert isinstance(listed, StageEntries)
        self.numbers = {entry.path: number for number, entry in enumerate(listed.entries)}
        return {entry.path: entry for entry in listed.entries}

    def send(self, *paths: str) -> dict[str, bytes]:
        """The contents that the host gets when it lacks these."""
        frames: list[object] = []
        for data in self._content.iterate_lacking_frames(self.numbers[path] for path in paths):
            frames += self._decoder.feed(data)
        got: dict[str, bytes] = {}
        for frame in frames:
            if isinstance(frame, StageEntry):
                path = frame.path
                got[path] = b""
            else:
                assert isinstance(frame, Raw)
                got[path] += frame.payload
        return got


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "short").write_bytes(b"a")
    (tmp_path / "long").write_bytes(LONG)
    return tmp_path


def test_entries_name_contents_by_checksum(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/link").symlink_to("../short")
    (folder / "short").chmod(0o640)
    os.utime(folder / "short", ns=(1, 10**18 + 3))
    listed = Staged(folder).list()
    assert listed["short"] == StageEntry("short", "file", 0o640, "", 10**18 + 3, compute(b"a"), 1)
    assert (listed["long"].checksum, listed["long"].size) == (compute(LONG), len(LONG))
    assert listed["sub"] == StageEntry("sub", "folder")
    assert listed["sub/link"] == StageEntry("sub/link", "link", target="../short")
    assert list(listed)[-1] == "sub/link"  # after all that could be written through it


def test_only_what_is_lacking_is_sent(folder: Path) -> None:
    staged = Staged(folder)
    staged.list()
    assert staged.send("long") == {"long": LONG}
    assert staged.send("short", "long") == {"short": b"a", "long": LONG}
    assert staged.send() == {}
    assert list(staged._content.iterate_lacking_frames((99, -1))) == []


def test_short_file_is_the_same_on_all_hosts(folder: Path) -> None:
    """Whatever is saved while they are asked."""
    staged = Staged(folder)
    staged.list()
    (folder / "short").write_bytes(b"saved")
    assert staged.send("short") == {"short": b"a"}
    assert staged.notes == []


def test_file_that_grows_is_sent_as_far_as_it_was_read(folder: Path) -> None:
    """As a log in the folder does."""
    staged = Staged(folder)
    staged.list()
    with (folder / "long").open("ab") as file:
        file.write(b"more")
    assert staged.send("long") == {"long": LONG}
    assert staged.notes == []


@pytest.mark.parametrize("now", [b"B" * len(LONG), LONG[:-1], b""])
def test_file_that_changes_before_it_is_sent_is_told_once(folder: Path, now: bytes) -> None:
    """The host will not keep it: it is not what its checksum says."""
    staged = Staged(folder)
    staged.list()
    (folder / "long").write_bytes(now)
    assert [staged.send("long") for _ in range(2)] == [{"long": now}] * 2
    [note] = staged.notes
    assert note.startswith("--sync: long has changed while it was sent")


def test_file_that_vanishes_is_an_error(folder: Path) -> None:
    staged = Staged(folder)
    staged.list()
    (folder / "long").unlink()
    with pytest.raises(LaunchError, match=r"--sync: .*long: No such file"):
        staged.send("long")


@pytest.mark.parametrize(("number", "why"), [(13, "Permission denied"), (2, "No such file")])
def test_folder_that_cannot_be_listed_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    """It may not be read, or has vanished since it was found."""
    (folder / "below").mkdir()
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("below"):
            raise OSError(number, os.strerror(number))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(LaunchError, match=f"--sync: .*/below: {why}"):
        list_entries((str(folder),), "/")


def test_links_that_loop_and_special_files_do_no_harm(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "fifo")
    kinds = {entry.path: entry.kind for entry in list_entries((str(folder),), "/")}
    name = folder.name
    assert (kinds[f"{name}/loop"], kinds[f"{name}/up"]) == ("link", "link")
    assert f"{name}/fifo" not in kinds


def test_longest_files_are_sent_each_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_MOST_KEPT", len(LONG) - 1)
    staged = Staged(folder)
    entry = staged.list()["long"]
    assert (entry.checksum, entry.size) == ("", len(LONG))
    assert staged.send("long") == {"long": LONG}


def test_memory_for_short_files_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_MOST_HELD", 0)
    staged = Staged(folder)
    staged.list()
    (folder / "short").write_bytes(b"A")
    assert staged.send("short") == {"short": b"A"}
    assert len(staged.notes) == 1

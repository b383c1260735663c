"""What a host keeps of the files that were sent to it: whole, for this user, within limits."""

import io
import os
import resource
import stat
import time
from pathlib import Path

import pytest

from mcjax_launch.agent import kept_files
from mcjax_launch.agent.kept_files import KeptFiles, open_own
from mcjax_launch.wire.checksum import compute

DAY_S = 24 * 3600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_files, "_LEAST_FREE", 0)
    (tmp_path / "kept").mkdir(0o700)
    return tmp_path / "kept"


def keep(folder: Path, content: bytes, kept: KeptFiles | None = None) -> str:
    (folder.parent / "sent").write_bytes(content)
    with io.FileIO(folder.parent / "sent") as file:
        (kept or KeptFiles(str(folder))).keep(compute(content), len(content), file)
    return compute(content)


def get(folder: Path, name: str, size: int) -> bytes | None:
    """What a later job finds under this name."""
    target = folder.parent / "target"
    with io.FileIO(target, "w") as file:
        if not KeptFiles(str(folder)).copy(name, size, file):
            return None
    return target.read_bytes()


def test_content_is_kept_for_this_user_alone(folder: Path) -> None:
    name = keep(folder, b"a content")
    assert get(folder, name, 9) == b"a content"
    assert get(folder, compute(b"another"), 7) is None
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert os.listdir(folder) == [name]


@pytest.mark.parametrize("damaged", [b"", b"a conten", b"a contenT", b"a content and more"])
def test_damaged_content_counts_as_missing(
    folder: Path, damaged: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_files, "_PIECE", 3)  # the content ends with a piece
    name = keep(folder, b"a content")
    (folder / name).write_bytes(damaged)
    assert get(folder, name, 9) is None
    assert os.listdir(folder) == []
    assert get(folder, keep(folder, b"a content"), 9) == b"a content"


def test_fifo_in_place_of_a_content_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / compute(b"x"))
    assert get(folder, compute(b"x"), 1) is None


def test_content_that_is_not_as_announced_is_not_kept(folder: Path) -> None:
    """As that of a file that was written to while it was sent."""
    (folder.parent / "sent").write_bytes(b"half of the new con")
    with io.FileIO(folder.parent / "sent") as file:
        KeptFiles(str(folder)).keep(compute(b"a content"), 9, file)
    assert os.listdir(folder) == []


def test_full_disk_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (folder.parent / "sent").write_bytes(bytes(1 << 17))
    with io.FileIO(folder.parent / "sent") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
        try:
            KeptFiles(str(folder)).keep(compute(bytes(1 << 17)), 1 << 17, file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(folder) == []
    monkeypatch.setattr(kept_files, "_LEAST_FREE", 1 << 62)  # nearly full
    keep(folder, b"a content")
    assert os.listdir(folder) == []


def test_longest_unused_content_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "MOST_BYTES", 100)
    names = [keep(folder, content * 30) for content in (b"a", b"b", b"c")]
    for days, name in enumerate(names, 2):
        os.utime(folder / name, (time.time() - days * DAY_S,) * 2)
    assert get(folder, names[2], 30) == b"c" * 30  # used again
    new = keep(folder, b"d" * 60)
    assert set(os.listdir(folder)) == {names[2], new}


def test_job_removes_nothing_that_it_uses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "MOST_BYTES", 100)
    kept = KeptFiles(str(folder))
    names = [keep(folder, content * 40, kept) for content in (b"a", b"b", b"c")]
    assert set(os.listdir(folder)) == set(names[:2])


def test_old_and_unfinished_contents_are_removed(folder: Path) -> None:
    old, young = keep(folder, b"old"), keep(folder, b"young")
    for name, hours in ((old, 31 * 24), (young, 29 * 24), (".dead", 2), (".alive", 0)):
        with (folder / name).open("ab"):
            os.utime(folder / name, (time.time() - hours * 3600,) * 2)
    new = keep(folder, b"new")
    assert set(os.listdir(folder)) == {young, new, ".alive"}


def test_agents_may_make_room_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has removed what another is about to remove."""
    monkeypatch.setattr(kept_files, "MOST_BYTES", 100)
    kept = KeptFiles(str(folder))
    old = [keep(folder, content * 45) for content in (b"a", b"b")]
    keep(folder, b"c", kept)
    for name in old:
        (folder / name).unlink()
    new = keep(folder, b"d" * 90, kept)
    assert new in os.listdir(folder)


def test_folder_is_made_private(tmp_path: Path) -> None:
    assert open_own({"XDG_CACHE_HOME": str(tmp_path / "cache")}) is not None
    for path in ("cache", "cache/mcjax-launch", "cache/mcjax-launch/kept"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o700


@pytest.mark.parametrize("what", ["open", "open above", "link", "exposed", "file", "relative"])
def test_folder_that_others_may_reach_is_not_used(tmp_path: Path, what: str) -> None:
    cache = tmp_path / "cache"
    (cache / "mcjax-launch").mkdir(0o700, parents=True)
    if what == "open":
        (cache / "mcjax-launch/kept").mkdir(0o755)
        (cache / "mcjax-launch/kept").chmod(0o755)
    elif what == "open above":
        (cache / "mcjax-launch").chmod(0o755)
    elif what == "link":
        (tmp_path / "elsewhere").mkdir(0o700)
        (cache / "mcjax-launch/kept").symlink_to(tmp_path / "elsewhere")
    elif what == "exposed":
        cache.chmod(0o777)
    elif what == "file":
        (cache / "mcjax-launch/kept").touch()
    environ = {"XDG_CACHE_HOME": "cache" if what == "relative" else str(cache)}
    assert open_own(environ) is None

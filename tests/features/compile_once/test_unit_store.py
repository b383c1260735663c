"""Compiled programs as files: whole or not at all, and no more of them than there is room."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcjax_launch.features.compile_once.hook.store import Executable, Store

KIB = 1 << 10
PROGRAM = Executable(b"code" * 256, 1.5)


def put(store: Store, key: str, size: int = KIB) -> bool:
    return store.write(key, Executable(os.urandom(size), 1.0))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_store_reads_back_what_it_has_written(tmp_path: Path) -> None:
    assert Store(str(tmp_path), 9 * KIB).write("a", PROGRAM)
    store = Store(str(tmp_path), 9 * KIB)
    assert store.has("a")
    assert store.read("a") == PROGRAM
    assert store.read("b") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:10],
        lambda content: content[:-1],
        lambda content: content[:-1] + b"!",
        lambda content: b"x" + content[1:],
        lambda content: bytes(len(content)),
    ],
    ids=["empty", "header", "truncated", "changed", "format", "zeros"],
)
def test_damaged_files_are_removed(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    store = Store(str(tmp_path), 9 * KIB)
    store.write("a", PROGRAM)
    [path] = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert store.read("a") is None
    assert files(tmp_path) == []


def test_least_recently_used_programs_are_removed(tmp_path: Path) -> None:
    store = Store(str(tmp_path), 10 * KIB)
    for number in range(8):
        assert put(store, str(number))
        os.utime(tmp_path / f"{number}.xla", (number, number))
    assert store.read("0") is not None  # used now
    for number in range(8, 11):
        assert put(store, str(number))
    assert store.has("0")
    assert not store.has("1")
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) <= 10 * KIB


def test_concurrent_writers_share_one_size_limit(tmp_path: Path) -> None:
    stores = [Store(str(tmp_path), 20 * KIB) for _ in range(4)]
    for number in range(80):
        assert put(stores[number % 4], str(number))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) <= 30 * KIB  # each searches after a tenth of the size


@pytest.mark.parametrize(("size", "least_s"), [(KIB, 0.0), (99 * KIB, 1.6)], ids=["large", "quick"])
def test_too_large_or_too_quick_programs_are_not_kept(
    tmp_path: Path, size: int, least_s: float
) -> None:
    assert not Store(str(tmp_path), size, least_s).write("a", PROGRAM)
    assert files(tmp_path) == []


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **folders: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        Store(str(tmp_path), 9 * KIB).write("a", PROGRAM)
    assert files(tmp_path) == []


def test_remains_of_killed_jobs_are_removed(tmp_path: Path) -> None:
    for name, age_s in {"old.part": 10**5, "new.part": 0.0, "other": 10**5}.items():
        (tmp_path / name).write_bytes(b"half")
        before = (tmp_path / name).stat().st_mtime - age_s
        os.utime(tmp_path / name, (before, before))
    put(Store(str(tmp_path), 2 * KIB), "a")
    assert files(tmp_path) == ["a.xla", "new.part", "other"]


def test_kept_programs_are_never_writable_by_every_user(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Store(str(tmp_path), 9 * KIB).write("a", PROGRAM)
    finally:
        os.umask(before)
    assert (tmp_path / "a.xla").stat().st_mode & 0o777 == 0o664


def test_each_new_writer_searches_a_full_folder(tmp_path: Path) -> None:
    """As processes that write a single small program each do."""
    for number in range(150):
        put(Store(str(tmp_path), 100 * KIB), str(number), KIB - 100)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100 * KIB


# --- what other users may have put there ---


def put_link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to("elsewhere")


def put_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def put_too_much(path: Path) -> None:
    os.truncate(path, 10 * KIB)


def put_open_file(path: Path) -> None:
    path.chmod(0o666)


def put_foreign_file(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 54321, 54321)


@pytest.mark.parametrize(
    "replace", [put_link, put_fifo, put_too_much, put_open_file, put_foreign_file]
)
def test_only_plain_files_of_trusted_users_are_read(
    tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    store = Store(str(tmp_path), 9 * KIB)
    store.write("a", PROGRAM)
    replace(tmp_path / "a.xla")
    assert not store.has("a")
    assert store.read("a") is None
    assert store.write("a", PROGRAM)
    assert store.read("a") == PROGRAM


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_members_of_a_group_share_its_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 54321, os.getegid())
    store = Store(str(tmp_path), 9 * KIB)
    store.write("a", PROGRAM)
    os.chown(tmp_path / "a.xla", 54322, os.getegid())
    assert store.read("a") is None
    tmp_path.chmod(0o2775)
    assert Store(str(tmp_path), 9 * KIB).read("a") == PROGRAM


def test_folder_that_has_taken_the_place_of_another_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    store = Store(str(folder), 9 * KIB)
    store.write("a", PROGRAM)
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    (tmp_path / "moved" / "a.xla").rename(folder / "a.xla")
    assert store.read("a") is None and not store.has("a")
    with pytest.raises(OSError, match="Stale"):
        store.write("b", PROGRAM)
    store.remove("a")
    assert files(folder) == ["a.xla"]

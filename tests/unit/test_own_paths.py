"""Paths that other users may have laid, or may change while they are used."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.machine import own_paths, temporary_folder
from mcjax_launch.machine.own_paths import explain_distrust, find_exposed_folder

OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def everybodys(tmp_path: Path) -> Path:
    """A folder to which every user may write, without the sticky bit."""
    folder = tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("data")
    return file


@pytest.mark.parametrize(("flags", "text"), [(os.O_TRUNC, "new"), (os.O_APPEND, "old text new")])
def test_file_that_exists_is_emptied_only_if_asked_for(
    tmp_path: Path, flags: int, text: str
) -> None:
    log = tmp_path / "log"
    log.write_text("old text ")
    with open(own_paths.open_file(str(log), flags), "w") as file:
        file.write("new")
    assert log.read_text() == text


# --- folders whose entries other users can rename ---


@pytest.mark.parametrize("below", ["", "own", "own/deeper", "missing/deeper"])
def test_every_folder_on_the_way_counts(everybodys: Path, below: str) -> None:
    (everybodys / "own" / "deeper").mkdir(parents=True)
    assert find_exposed_folder(str(everybodys / below)) == str(everybodys)
    everybodys.chmod(0o1777)
    assert find_exposed_folder(str(everybodys / below)) == ""
    everybodys.chmod(0o755)
    assert find_exposed_folder(str(everybodys / below)) == ""


def test_folder_of_a_link_counts_too(everybodys: Path, tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    (everybodys / "link").symlink_to(tmp_path / "safe")
    (tmp_path / "own").symlink_to(everybodys / "link")
    assert find_exposed_folder(str(tmp_path / "own")) == str(everybodys)
    assert find_exposed_folder(str(tmp_path / "safe")) == ""


@as_root
def test_folder_of_a_group_counts_unless_it_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    os.chown(folder, -1, OTHER)
    folder.chmod(0o775)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert find_exposed_folder(str(folder / "own")) == str(folder)
    monkeypatch.setattr(os, "getgroups", lambda: [OTHER])
    assert find_exposed_folder(str(folder / "own")) == ""


def test_cache_below_an_exposed_folder_is_not_trusted(everybodys: Path) -> None:
    reason = f"other users can rename what is in {everybodys} (chmod +t {everybodys})"
    assert explain_distrust(str(everybodys / "own" / "cache")) == reason
    everybodys.chmod(0o1777)
    assert explain_distrust(str(everybodys / "own" / "cache")) == ""


@as_root
@pytest.mark.parametrize("sticky", [False, True])
def test_another_user_can_rename_exactly_what_is_exposed(sticky: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        own = Path(folder, "own")
        own.mkdir()
        os.chmod(folder, 0o1777 if sticky else 0o777)
        moved = subprocess.run(["mv", own, f"{own}.moved"], user=OTHER, capture_output=True)
        assert (moved.returncode == 0) == (not sticky)
        assert find_exposed_folder(str(own)) == ("" if sticky else folder)


# --- temporary folders ---


def test_temporary_folders_are_made_where_nobody_can_rename_them(
    everybodys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe = tmp_path / "safe"
    safe.mkdir()
    monkeypatch.setattr(temporary_folder, "_OTHERS", (str(safe),))
    monkeypatch.setenv("TMPDIR", str(everybodys / "own"))
    (everybodys / "own").mkdir()
    made = Path(temporary_folder.make("x-"))
    assert made.parent == safe and made.name.startswith("x-")
    assert made.stat().st_mode & 0o777 == 0o700
    assert list((everybodys / "own").iterdir()) == []
    everybodys.chmod(0o1777)
    assert Path(temporary_folder.make("x-")).parent == everybodys / "own"


def test_temporary_folder_is_refused_where_all_can_be_renamed(
    everybodys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_folder, "_OTHERS", (str(everybodys),))
    monkeypatch.setenv("TMPDIR", str(everybodys / "missing"))
    with pytest.raises(temporary_folder.NoFolder) as refused:
        temporary_folder.make("x-")
    assert str(refused.value) == (
        f"cannot use {everybodys}: other users can rename what is in {everybodys} "
        f"(chmod +t {everybodys}); set TMPDIR to another directory"
    )


# --- files ---


def test_hard_link_in_a_folder_of_every_user_is_not_emptied(everybodys: Path, victim: Path) -> None:
    everybodys.chmod(0o1777)
    os.link(victim, everybodys / "log")
    with pytest.raises(PermissionError, match="is a hard link"):
        own_paths.open_file(str(everybodys / "log"), os.O_TRUNC)
    assert victim.read_text() == "data"


def test_link_that_appears_at_the_last_moment_is_not_followed(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, open_ = tmp_path / "log", os.open

    def open_late(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT:  # the walk is over
            log.symlink_to(victim)
        return open_(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", open_late)
    with pytest.raises(OSError, match="symbolic links"):
        own_paths.open_file(str(log), os.O_TRUNC)
    assert victim.read_text() == "data"


def test_folder_that_becomes_a_link_at_the_last_moment_is_not_entered(
    everybodys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybodys.chmod(0o1777)
    logs, private, open_ = everybodys / "logs", tmp_path / "private", os.open
    logs.mkdir()
    private.mkdir()

    def open_late(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if path == "logs" and not logs.is_symlink():  # its status has been read
            logs.rmdir()
            logs.symlink_to(private)
        return open_(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", open_late)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        own_paths.open_file(str(logs / "0.out"), os.O_TRUNC)
    assert list(private.iterdir()) == []


@as_root
def test_file_that_another_user_makes_at_the_last_moment_is_not_emptied(
    everybodys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybodys.chmod(0o1777)
    log, open_ = everybodys / "log", os.open

    def open_late(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT and path == log.name:
            monkeypatch.setattr(os, "open", open_)
            log.write_text("theirs")
            os.chown(log, OTHER, OTHER)
        return open_(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", open_late)
    with pytest.raises(PermissionError, match=f"log is a file of user {OTHER}"):
        own_paths.open_file(str(log), os.O_TRUNC)
    assert log.read_text() == "theirs"


def test_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        own_paths.open_file(str(tmp_path / "a"), os.O_TRUNC)


def test_removal_of_a_file_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        own_paths.remove_file(str(tmp_path / "missing" / "log"))
    assert list(tmp_path.iterdir()) == []


def test_private_folders_are_made_with_private_parents(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    own_paths.make_private_folder(str(tmp_path / "a" / "b"))
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")] == [
        0o700,
        0o700,
    ]
    assert tmp_path.stat().st_mode & 0o777 == 0o755

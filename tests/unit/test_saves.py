"""--watch: which files count, when they are decided about, and what Python has compiled of them."""

import ctypes
import importlib.util
import os
import py_compile
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Clock
from jobs import shell_script

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch import folders, saves
from mcjax_launch.features.watch import watcher as watching
from mcjax_launch.features.watch.folders import Watched, WatchedFolders
from mcjax_launch.features.watch.options import may_be_watched
from mcjax_launch.features.watch.saves import Saves, remove_compiled
from mcjax_launch.features.watch.watcher import Watcher
from mcjax_launch.job.program_file import find_syntax_errors
from mcjax_launch.machine.loop import Loop

pytestmark = [pytest.mark.only_linux("inotify"), pytest.mark.every_jax]


# --- which files count ---


@pytest.mark.parametrize(
    ("name", "of_python", "of_all"),
    [
        ("a.py", True, True),
        ("a.yaml", False, True),
        (".a.py", False, False),
        (".#a.py", False, False),
        ("#a.py#", False, False),
        ("a.py~", False, False),
        ("4913", False, False),
        (".a.py.swp", False, False),
        ("a.pyc", False, False),
    ],
)
def test_only_sources_count(name: str, *, of_python: bool, of_all: bool) -> None:
    assert Watched("/a").includes_file(name) == of_python
    assert Watched("/a", all_files=True).includes_file(name) == of_all
    assert Watched("/a", name).includes_file(name)
    assert not Watched("/a", "other").includes_file(name)


def test_a_link_to_a_folder_above_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "up").symlink_to(tmp_path)
    watched = WatchedFolders([Watched(str(tmp_path))])
    (tmp_path / "package" / "a.py").touch()
    assert [os.path.basename(path) for path in watched.read_saved_paths()] == ["a.py"]


def test_new_link_counts(tmp_path: Path) -> None:
    watched = WatchedFolders([Watched(str(tmp_path))])
    (tmp_path / "config.py").symlink_to("other.py")
    assert watched.read_saved_paths() == [str(tmp_path / "config.py")]


def test_new_folder_counts_if_python_can_import_from_it(tmp_path: Path) -> None:
    watched = WatchedFolders([Watched(str(tmp_path))])
    for name in ("package", "run-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").touch()
    assert watched.read_saved_paths() == [str(tmp_path / "package" / "a.py")]


def test_file_that_the_job_writes_does_not_count_under_another_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    every = Watched(str(tmp_path / "link"), all_files=True)
    watched = WatchedFolders([every], [str(tmp_path / "real" / "run.json")])
    for name in ("run.json", "run.yaml"):
        (tmp_path / "link" / name).touch()
    assert watched.read_saved_paths() == [str(tmp_path / "link" / "run.yaml")]


def test_open_file_does_not_count(tmp_path: Path) -> None:
    watched = WatchedFolders([Watched(str(tmp_path))])
    with (tmp_path / "a.py").open("w") as file:
        file.write("half of")
        file.flush()
        assert watched.read_saved_paths() == []
    assert watched.read_saved_paths() == [str(tmp_path / "a.py")]


def test_saves_are_found_although_the_kernel_has_lost_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And folders that came meanwhile are watched."""
    watched = WatchedFolders([Watched(str(tmp_path))])
    (tmp_path / "a.py").touch()
    (tmp_path / "package").mkdir()
    assert os.read(watched.fd, 1 << 16)
    lost = iter([struct.pack("iIII", -1, 0x4000, 0, 0)])
    with monkeypatch.context() as patch:
        patch.setattr(watched, "_read", lambda: next(lost, b""))
        assert watched.read_saved_paths() == [str(tmp_path / "a.py")]
    (tmp_path / "package" / "b.py").touch()
    assert watched.read_saved_paths() == [str(tmp_path / "package" / "b.py")]


def test_too_many_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_MOST_FOLDERS", 3)
    for name in "abc":
        (tmp_path / name).mkdir()
    with pytest.raises(LaunchError, match=f"more than 3 directories below {tmp_path}: "):
        WatchedFolders([Watched(str(tmp_path))])


def test_folders_that_become_too_many_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedFolders([Watched(str(tmp_path))])
    monkeypatch.setattr(folders, "_MOST_FOLDERS", 3)
    for name in "abcd":
        (tmp_path / name).mkdir()
    assert watched.read_saved_paths() == []
    (tmp_path / "a" / "a.py").touch()
    assert watched.read_saved_paths() == [str(tmp_path / "a" / "a.py")]
    [problem] = watched.problems
    assert problem.startswith(f"--watch: more than 3 directories below {tmp_path}: ")


@pytest.mark.parametrize("way", ["renamed", "removed"])
def test_removed_folder_is_named(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    watched = WatchedFolders([Watched(str(folder))])
    folder.rename(tmp_path / "other") if way == "renamed" else folder.rmdir()
    watched.read_saved_paths()
    watched.read_saved_paths()  # what a renamed one makes the kernel say
    assert watched.problems == [
        f"--watch: {folder} is gone: restart mcjax-launch to watch it again"
    ]


def test_rename_of_a_folder_keeps_the_watch_on_longer_names(tmp_path: Path) -> None:
    for name in ("model", "models"):
        (tmp_path / name).mkdir()
    watched = WatchedFolders([Watched(str(tmp_path))])
    (tmp_path / "model").rename(tmp_path / "other")
    assert watched.read_saved_paths() == []
    (tmp_path / "models" / "a.py").touch()
    assert watched.read_saved_paths() == [str(tmp_path / "models" / "a.py")]


def test_too_many_watches_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(*_: object) -> int:
        ctypes.set_errno(28)
        return -1

    library = SimpleNamespace(inotify_init1=lambda _: os.dup(0), inotify_add_watch=add)
    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: library)
    with pytest.raises(LaunchError, match=r"the limit fs\.inotify\.max_user_watches is reached: "):
        WatchedFolders([Watched(str(tmp_path))])


def test_missing_inotify_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: object())
    with pytest.raises(LaunchError, match="--watch needs Linux"):
        WatchedFolders([Watched("/")])


def test_watch_value_is_told_from_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROGRAM may: only what cannot be one is taken for PATH."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    shell_script(tmp_path / "run.sh", "true")
    for name in ("train.py", "config.yaml"):
        (tmp_path / name).touch()
    words = ["src", "config.yaml", "train.py", "run.sh", "bash", "no.yaml"]
    assert [word for word in words if may_be_watched(word)] == ["src", "config.yaml"]


# --- when they are decided about ---


class Desk:
    """Saves whose files and time are told."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.clock = Clock(patch, saves)
        self.said: list[str] = []
        self._loop = Loop()
        self._folder = folder
        watched = WatchedFolders([Watched(str(folder))])
        self.saves = Saves(watched, self._loop, sys.executable, self)
        self.on_syntax_error = self.on_problem = self.said.append
        self._changed = ""

    def on_due(self, changed: str) -> None:
        self._changed = changed

    def save(self, name: str, text: str = "") -> None:
        (self._folder / name).write_text(text)
        self._loop.dispatch_ready(0)

    def after(self, seconds: float) -> str:
        """So much later; the description of the files for which the job has become due."""
        self.clock.now += seconds
        self._changed = ""
        self.saves.expire(self.clock.now)
        return self._changed


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    yield Desk(monkeypatch, tmp_path)


def test_saves_are_waited_for_until_none_comes(desk: Desk) -> None:
    desk.save("a.py")
    assert desk.after(0.09) == ""
    desk.save("b.py")
    assert desk.after(0.09) == ""
    assert desk.after(0.02) == "a.py and b.py have changed"
    assert desk.saves.is_ready


def test_saves_without_end_are_not_waited_for(desk: Desk) -> None:
    reasons = []
    for _ in range(20):
        desk.save("a.py")
        reasons.append(desk.after(0.06))
    assert [reason for reason in reasons if reason] == ["a.py has changed"]


def test_save_during_the_end_of_the_job_is_waited_for(desk: Desk) -> None:
    """It is said once, and what is broken then is not started."""
    desk.save("a.py")
    assert desk.after(0.2)
    desk.save("b.py", "(")
    assert not desk.saves.is_ready
    assert desk.after(0.2) == ""
    assert desk.said == ["b.py:1: SyntaxError: '(' was never closed"]
    assert not desk.saves.is_ready
    desk.save("b.py", "()")
    assert desk.after(0.2) == "a.py and b.py have changed"
    desk.saves.begin()
    desk.save("b.py")
    assert desk.after(0.2) == "b.py has changed"


def test_job_that_ends_for_a_save_is_not_ended_again_for_the_next(desk: Desk) -> None:
    desk.save("a.py")
    assert desk.after(0.2)
    desk.save("b.py")
    assert desk.after(0.2) == ""
    assert desk.saves.is_ready


def test_start_removes_what_python_has_compiled_of_saved_modules(
    desk: Desk, tmp_path: Path
) -> None:
    desk.save("a.py", "one = 1")
    desk.save("b.py", "one = 1")
    assert desk.after(0.2)
    desk.saves.begin()
    kept, removed = (py_compile.compile(str(tmp_path / name)) for name in ("a.py", "b.py"))
    desk.save("b.py", "two = 2")
    assert desk.after(0.2)
    desk.saves.begin()
    assert (os.path.exists(str(kept)), os.path.exists(str(removed))) == (True, False)


def test_nothing_is_quiet_while_a_save_is_undecided(desk: Desk) -> None:
    assert desk.saves.is_quiet
    desk.save("a.py")
    assert not desk.saves.is_quiet
    desk.after(0.2)
    assert not desk.saves.is_quiet
    desk.saves.begin()
    assert desk.saves.is_quiet


def test_links_that_lead_nowhere_are_no_folders(tmp_path: Path) -> None:
    """One that loops, one to a folder that may not be read, and one to a file that is gone."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("missing/deeper")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "secret").mkdir(mode=0)
    (tmp_path / "into").symlink_to("secret/inner")
    watched = WatchedFolders([Watched(str(tmp_path))])
    (tmp_path / "a.py").touch()
    assert watched.read_saved_paths() == [str(tmp_path / "a.py")]


def test_nothing_starts_until_every_syntax_error_is_corrected(desk: Desk) -> None:
    desk.save("a.py", "(")
    assert desk.after(0.2) == ""
    desk.save("b.py")
    assert desk.after(0.2) == ""
    desk.save("c.py", "(")
    assert desk.after(0.2) == ""
    never = "SyntaxError: '(' was never closed"
    assert desk.said == [f"{name}.py:1: {never}" for name in "aaac"]
    desk.save("c.py", "()")
    assert desk.after(0.2) == ""
    assert not desk.saves.is_ready
    desk.save("a.py", "()")
    assert desk.after(0.2) == "a.py and 2 other files have changed"


@pytest.mark.parametrize(
    ("typed", "runs"), [(b"\n", True), (b"again\n", True), (b"x", False), (b"", False)]
)
def test_only_enter_runs_the_job_again(
    monkeypatch: pytest.MonkeyPatch, typed: bytes, runs: bool
) -> None:
    """Ctrl-D passes on what was typed before it; alone it is the end of the input."""
    requests: list[bool] = []
    forgotten: list[int] = []
    job: Any = Watcher.__new__(Watcher)
    job._saves = SimpleNamespace(request=lambda: requests.append(True))
    job._front = SimpleNamespace(loop=SimpleNamespace(forget=forgotten.append))
    monkeypatch.setattr(watching, "_is_at_terminal", lambda: True)
    monkeypatch.setattr(os, "read", lambda fd, count: typed)
    job._read_key()
    monkeypatch.undo()
    assert (requests, forgotten) == ([True] * runs, [] if typed else [0])


# --- what Python makes of them ---


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a = 1", ""),
        ("'\\d'", ""),  # of which it only warns
        ("a = 1\nif (", "2: SyntaxError: '(' was never closed"),
        ("if 1:\npass", "2: IndentationError: expected an indented block after 'if' statement"),
        ("return 1", "1: SyntaxError: 'return' outside function"),
    ],
)
def test_syntax_errors_are_found(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "a.py").write_text(text)
    path = str(tmp_path / "a.py")
    found = find_syntax_errors([path], sys.executable)
    assert [*found] == ([path] if error else [])
    assert found.get(path, "").startswith(error)


def test_all_saved_files_are_checked_by_one_process(tmp_path: Path) -> None:
    """As after a checkout of another branch."""
    paths = [tmp_path / f"a {number}\n.py" for number in range(500)]
    for number, path in enumerate(paths):
        path.write_text("x =" if number % 100 == 7 else "x = 1")
    count = tmp_path / "count"
    python = shell_script(tmp_path / "python", f'echo >> {count}; exec {sys.executable} "$@"')
    found = find_syntax_errors([*map(str, paths), str(tmp_path / "none.py")], str(python))
    assert found == dict.fromkeys(map(str, paths[7::100]), "1: SyntaxError: invalid syntax")
    assert count.read_text() == "\n"
    assert find_syntax_errors([], "/no/python") == {}


def test_ranks_python_decides_on_syntax(tmp_path: Path) -> None:
    """A newer one may know what this one does not."""
    (tmp_path / "a.py").write_text("new syntax")
    newer = shell_script(tmp_path / "newer", "exit 0")
    older = shell_script(tmp_path / "older", f'exec {sys.executable} "$@"')
    path = str(tmp_path / "a.py")
    assert find_syntax_errors([path], str(newer)) == {}
    assert find_syntax_errors([path], str(older)) == {path: "1: SyntaxError: invalid syntax"}
    assert find_syntax_errors([path], "/no/python") == {}


def test_compiled_file_of_a_saved_module_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "run [1]"
    folder.mkdir()
    sources = [folder / name for name in ("a.py", "b.py")]
    for source in sources:
        source.touch()
        py_compile.compile(str(source))
    remove_compiled(str(sources[0]))
    compiled = [Path(importlib.util.cache_from_source(str(source))) for source in sources]
    assert [path.exists() for path in compiled] == [False, True]

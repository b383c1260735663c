"""--watch: which files count, when they are decided about, and what Python has compiled of them."""

import ctypes
import importlib.util
import os
import py_compile
import select
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Clock
from jobs import shell_script

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.watch import saves
from mcjax_launch.features.watch import watcher as watching
from mcjax_launch.features.watch.files import Watched
from mcjax_launch.features.watch.options import may_be_watched
from mcjax_launch.features.watch.saves import Saves, remove_compiled
from mcjax_launch.features.watch.watcher import Watcher
from mcjax_launch.job.program_file import find_syntax_errors

pytestmark = [pytest.mark.only_linux("inotify"), pytest.mark.every_jax]


class Desk:
    """A folder in which files are saved, what is said of them, and what the job is started for."""

    def __init__(self, folder: Path, *watched: Watched, without: Path | None = None) -> None:
        self.said: list[str] = []
        self._due: list[str] = []
        self._folder = folder
        self.saves = Saves(
            watched or [Watched(str(folder))],
            [str(without)] if without else [],
            sys.executable,
            self.said.append,
            self._due.append,
        )

    def read(self) -> None:
        while select.select([self.saves.fd], [], [], 0)[0]:
            self.saves.read()

    def find_changed(self) -> list[str]:
        """The paths below the folder that were saved since the last call."""
        self.read()
        changed = [os.path.relpath(path, self._folder) for path in self.saves._changed]
        self.saves.begin()
        return changed

    def save(self, name: str, text: str = "") -> None:
        (self._folder / name).write_text(text)
        self.read()

    def after(self, clock: Clock, seconds: float) -> str:
        """So much later; the description of the files for which the job has become due."""
        clock.now += seconds
        self._due.clear()
        self.saves.expire(clock.now)
        return "".join(self._due)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    monkeypatch.chdir(tmp_path)
    return Clock(monkeypatch, saves)


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
    desk = Desk(tmp_path)
    (tmp_path / "package" / "a.py").touch()
    assert desk.find_changed() == ["package/a.py"]


def test_new_folder_counts_if_python_can_import_from_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for name in ("package", "run-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").touch()
    assert desk.find_changed() == ["package/a.py"]


def test_file_that_the_job_writes_does_not_count_under_another_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    every = Watched(str(tmp_path / "link"), all_files=True)
    desk = Desk(tmp_path, every, without=tmp_path / "real" / "run.json")
    for name in ("run.json", "run.yaml"):
        (tmp_path / "link" / name).touch()
    assert desk.find_changed() == ["link/run.yaml"]


def test_open_file_does_not_count(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with (tmp_path / "a.py").open("w") as file:
        file.write("half of")
        file.flush()
        assert desk.find_changed() == []
    assert desk.find_changed() == ["a.py"]


def test_links_that_lead_nowhere_are_no_folders(tmp_path: Path) -> None:
    """One that loops, one to a folder that may not be read, and one to a file that is gone."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("missing/deeper")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "secret").mkdir(mode=0)
    (tmp_path / "into").symlink_to("secret/inner")
    desk = Desk(tmp_path)
    (tmp_path / "a.py").touch()
    assert desk.find_changed() == ["a.py"]


def test_saves_are_found_although_the_kernel_has_lost_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And folders that came meanwhile are watched."""
    desk = Desk(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "package").mkdir()
    assert os.read(desk.saves.fd, 1 << 16)
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", lambda fd, count: struct.pack("iIII", -1, 0x4000, 0, 0))
        desk.saves.read()
    assert desk.find_changed() == ["a.py"]
    (tmp_path / "package" / "b.py").touch()
    assert desk.find_changed() == ["package/b.py"]


def test_too_many_folders_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)
    monkeypatch.setattr(saves, "_MOST_FOLDERS", 3)
    for name in "abcd":
        (tmp_path / name).mkdir()
    assert desk.find_changed() == []
    (tmp_path / "c.py").touch()
    assert desk.find_changed() == ["c.py"]
    assert desk.said == [
        f"--watch: {tmp_path} has too many directories, and only 3 are watched: name a smaller one"
    ]


@pytest.mark.parametrize("way", ["renamed", "removed"])
def test_removed_folder_is_named(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    desk = Desk(folder)
    folder.rename(tmp_path / "other") if way == "renamed" else folder.rmdir()
    desk.read()
    assert desk.said == [f"--watch: {folder} is gone: start mcjax-launch again to watch it"]


def test_rename_of_a_folder_keeps_the_watch_on_longer_names(tmp_path: Path) -> None:
    for name in ("model", "models"):
        (tmp_path / name).mkdir()
    desk = Desk(tmp_path)
    (tmp_path / "model").rename(tmp_path / "other")
    assert desk.find_changed() == []
    (tmp_path / "models" / "a.py").touch()
    assert desk.find_changed() == ["models/a.py"]


def test_too_many_watches_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(*_: object) -> int:
        ctypes.set_errno(28)
        return -1

    library = SimpleNamespace(inotify_init1=lambda _: os.dup(0), inotify_add_watch=add)
    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: library)
    [line] = Desk(tmp_path).said
    assert line.startswith(f"--watch: {tmp_path} is not watched: ")
    assert line.endswith(": raise fs.inotify.max_user_watches with sysctl")


def test_missing_inotify_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: object())
    with pytest.raises(LaunchError, match="--watch needs Linux"):
        Desk(tmp_path)


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


def test_saves_are_waited_for_until_none_comes(tmp_path: Path, clock: Clock) -> None:
    desk = Desk(tmp_path)
    desk.save("a.py")
    assert desk.after(clock, 0.09) == ""
    desk.save("b.py")
    assert desk.after(clock, 0.09) == ""
    assert desk.after(clock, 0.02) == "a.py and b.py have changed"
    assert desk.saves.is_ready


def test_save_during_the_end_of_the_job_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    """The job is not ended again for it; and what is broken then is not started."""
    desk = Desk(tmp_path)
    desk.save("a.py")
    assert desk.after(clock, 0.2)
    desk.save("b.py")
    assert not desk.saves.is_ready
    assert desk.after(clock, 0.2) == ""
    assert desk.saves.is_ready
    desk.save("b.py", "(")
    assert desk.after(clock, 0.2) == ""
    assert not desk.saves.is_ready
    desk.save("b.py", "()")
    assert desk.after(clock, 0.2) == "a.py and b.py have changed"
    desk.saves.begin()
    desk.save("b.py")
    assert desk.after(clock, 0.2) == "b.py has changed"


def test_nothing_starts_until_every_syntax_error_is_corrected(tmp_path: Path, clock: Clock) -> None:
    desk = Desk(tmp_path)
    for name, text in (("a.py", "("), ("b.py", ""), ("c.py", "("), ("c.py", "()")):
        desk.save(name, text)
        assert desk.after(clock, 0.2) == ""
    why = "SyntaxError: '(' was never closed; not started again before it is corrected"
    assert desk.said == [f"{name}.py:1: {why}" for name in "aaaca"]
    desk.save("a.py", "()")
    assert desk.after(clock, 0.2) == "a.py and 2 other files have changed"


def test_start_removes_what_python_has_compiled_of_saved_modules(
    tmp_path: Path, clock: Clock
) -> None:
    desk = Desk(tmp_path)
    desk.save("a.py", "one = 1")
    desk.save("b.py", "one = 1")
    desk.saves.begin()
    kept, removed = (py_compile.compile(str(tmp_path / name)) for name in ("a.py", "b.py"))
    desk.save("b.py", "two = 2")
    desk.saves.begin()
    assert (os.path.exists(str(kept)), os.path.exists(str(removed))) == (True, False)


@pytest.mark.parametrize(
    ("typed", "runs"), [(b"\n", True), (b"again\n", True), (b"x", False), (b"", False)]
)
def test_only_enter_runs_the_job_again(
    monkeypatch: pytest.MonkeyPatch, typed: bytes, runs: bool
) -> None:
    """Ctrl-D passes on what was typed before it; alone it is the end of the input."""
    forgotten: list[int] = []
    job: Any = Watcher.__new__(Watcher)
    job._saves = SimpleNamespace(is_due=False)
    job._front = SimpleNamespace(loop=SimpleNamespace(forget=forgotten.append))
    monkeypatch.setattr(watching, "is_in_foreground", lambda fd: True)
    monkeypatch.setattr(os, "read", lambda fd, count: typed)
    job._read_key()
    monkeypatch.undo()
    assert (job._saves.is_due, forgotten) == (runs, [] if typed else [0])


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

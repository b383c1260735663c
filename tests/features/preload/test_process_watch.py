"""--preload with --watch: what was imported before a save is run only if it is what is there now."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import Jobs, Running, eventually

pytestmark = pytest.mark.only_linux("inotify")

PROGRAM = """
import os, jax, builtins, difflib
by = getattr(difflib, "by", "library")
print("rank", jax.by == os.getpid(), jax.text, builtins.custom, by, flush=True)
"""
#: Counts its imports, which says when the next run has been prepared.
JAX = """
import os, difflib
by, text = os.getpid(), "old"
with open({log!r}, "a") as file:
    file.write("x")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program, and an environment with a library and a sitecustomize of the user's."""
    packages = tmp_path / "env" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (tmp_path / "env" / "bin").mkdir()
    python = Path(os.path.realpath(sys.executable))
    (tmp_path / "env" / "bin" / "python").symlink_to(python)
    (tmp_path / "env" / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    (packages / "jax.py").write_text(JAX.format(log=str(tmp_path / "log")))
    # In PYTHONPATH: Debian's Python has a sitecustomize of its own before that of the packages.
    custom = tmp_path / "custom"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text("import builtins, team; builtins.custom = team.text")
    (custom / "team.py").write_text("text = 'old'")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    return tmp_path


def packages_of(folder: Path) -> Path:
    return next(folder.glob("env/lib/*/site-packages"))


def start(jobs: Jobs, folder: Path) -> Running:
    """A job that has run once, and whose next run has imported."""
    words = ["-v", "-n", 2, "--python", folder / "env" / "bin" / "python", "--watch", "train.py"]
    running = jobs.start(
        *("--preload", "auto", *words),
        cwd=folder / "src",
        env={"PYTHONPATH": str(folder / "custom")},
        stderr=subprocess.STDOUT,
    )
    running.read_until("forked after importing jax")
    running.read_until("waiting for the next save")
    eventually(lambda: (folder / "log").read_text() == "xx")
    return running


def save(path: Path, text: str) -> None:
    """Put a new file in the place of a file, as package managers and many editors do."""
    path.with_name("part").write_text(text)
    path.with_name("part").replace(path)


def run_again(running: Running, folder: Path) -> list[str]:
    """Save the program; what the next run prints."""
    save(folder / "src" / "train.py", PROGRAM)
    running.read_until("waiting for the next save", 2)
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 130, ended.stdout
    return ended.stdout.partition("changed: starting again")[2].splitlines()


def test_ranks_are_forked_if_nothing_else_has_changed(jobs: Jobs, folder: Path) -> None:
    lines = run_again(start(jobs, folder), folder)
    assert sorted(line for line in lines if " rank False " in line) == [
        f"[{rank}] rank False old old library" for rank in (0, 1)
    ]
    assert any("forked after importing jax" in line for line in lines)


def edit_sitecustomize(folder: Path) -> None:
    save(folder / "custom" / "sitecustomize.py", "import builtins; builtins.custom = 'renewed'")


def edit_what_sitecustomize_imports(folder: Path) -> None:
    (folder / "custom" / "team.py").write_text("text = 'renewed'")


def upgrade_a_package(folder: Path) -> None:
    old = (packages_of(folder) / "jax.py").read_text()
    save(packages_of(folder) / "jax.py", old.replace("old", "renewed"))


def add_a_module_beside_the_program(folder: Path) -> None:
    (folder / "src" / "difflib.py").write_text("by = 'renewed'")


def install_editable(folder: Path) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "jax.py").write_text("import os; by, text = os.getpid(), 'renewed'")
    packages = packages_of(folder)
    (packages / "jax.py").unlink()
    (packages / "__editable__.jax.pth").write_text(f"{folder / 'project'}\n")


def put_a_module_before_the_library(folder: Path) -> None:
    text = "import sys; sys.path.insert(0, sys.prefix)"
    (packages_of(folder) / "first.pth").write_text(text)
    (folder / "env" / "jax.py").write_text("import os; by, text = os.getpid(), 'renewed'")


CHANGES: dict[Callable[[Path], None], str] = {
    edit_sitecustomize: "old renewed library",
    edit_what_sitecustomize_imports: "old renewed library",
    upgrade_a_package: "renewed old library",
    add_a_module_beside_the_program: "old old renewed",
    install_editable: "renewed old library",
    put_a_module_before_the_library: "renewed old library",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_has_changed_since_the_import_is_run(
    jobs: Jobs, folder: Path, change: Callable[[Path], None]
) -> None:
    running = start(jobs, folder)
    change(folder)
    lines = run_again(running, folder)
    printed = [line.partition("] rank ")[2] for line in lines if "] rank " in line]
    assert printed == [f"True {CHANGES[change]}"] * 2, lines
    assert any("started afresh" in line and "--preload" in line for line in lines)

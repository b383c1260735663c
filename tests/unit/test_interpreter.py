"""Which Pythons there are, and whether one has jax: told by its folder, where that can be."""

import os
import sys
from pathlib import Path

import pytest

from mcjax_launch.machine import interpreter


def environment(folder: Path, *, mark: str = "pyvenv.cfg", jax: bool = True) -> str:
    """A folder like that of a virtual environment, whose Python cannot even start."""
    (folder / "bin").mkdir(parents=True)
    (folder / mark).touch()
    packages = folder / "lib/python3.11/site-packages"
    (packages / "jax").mkdir(parents=True)
    if jax:
        (packages / "jax/__init__.py").touch()
    return executable(folder / "bin/python", "exit 9")


def executable(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta"])
def test_environment_folder_shows_whether_it_has_jax(tmp_path: Path, mark: str) -> None:
    assert interpreter.has_jax(environment(tmp_path / "a", mark=mark), "/", {})
    assert not interpreter.has_jax(environment(tmp_path / "b", mark=mark, jax=False), "/", {})


def test_python_must_find_jax_of_its_own_version(tmp_path: Path) -> None:
    python = environment(tmp_path)
    (tmp_path / "lib/python3.12/site-packages").mkdir(parents=True)
    assert not interpreter.has_jax(python, "/", {})


def test_another_python_is_asked_for_jax(tmp_path: Path) -> None:
    environment(tmp_path / "other")
    elsewhere = {"PYTHONPATH": f"{tmp_path}/other/lib/python3.11/site-packages"}
    shim = executable(tmp_path / "python", f'exec {sys.executable} "$@"')
    assert interpreter.has_jax(shim, "/", elsewhere)
    assert not interpreter.has_jax(executable(tmp_path / "broken", "exit 1"), "/", {})


def test_version_of_jax_is_read(tmp_path: Path) -> None:
    python = environment(tmp_path / "own")
    packages = tmp_path / "own/lib/python3.11/site-packages"
    assert interpreter.find_jax_version(python, "/", {}) == ""
    (packages / "jax/version.py").write_text('import os\n_version = "0.10.2"\n')
    assert interpreter.find_jax_version(python, "/", {}) == "0.10.2"
    shim = executable(tmp_path / "python", f'echo hello; exec {sys.executable} "$@"')
    assert interpreter.find_jax_version(shim, "/", {"PYTHONPATH": str(packages)}) == "0.10.2"
    assert interpreter.find_jax_version(executable(tmp_path / "broken", "exit 1"), "/", {}) == ""
    assert interpreter.find_jax_version(str(tmp_path / "none"), "/", {}) == ""


def test_a_folder_named_jax_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    shim = executable(tmp_path / "python", f'exec {sys.executable} -S "$@"')
    assert not interpreter.has_jax(shim, str(tmp_path), {})


def test_each_environment_is_named_once(tmp_path: Path) -> None:
    """A link in another folder is another environment's; python3 beside python is not."""
    base = executable(tmp_path / "base", "")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for link in ("python", "python3"):
            (tmp_path / name / link).symlink_to(base)
    (tmp_path / "again").symlink_to(tmp_path / "one")
    folders = [f"{tmp_path}/{name}" for name in ("none", "one", "again", "two")]
    first, second = f"{tmp_path}/one/python3", f"{tmp_path}/two/python3"
    assert interpreter.find_in_folders(folders, without=sys.executable) == [first, second]
    assert interpreter.find_in_folders(folders, without=f"{tmp_path}/one/python") == [second]
    path = os.pathsep.join(folders)
    assert interpreter.find(["/no/python", "python", first], path) == [f"{tmp_path}/one/python"]

"""The git checkout in a record: its commit, and whether it was clean when the job began."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jobs import shell_script

from mcjax_launch.features.report import report_file
from mcjax_launch.features.report.report_file import find_checkout
from mcjax_launch.job.job import Job

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit of train.py."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.py").write_text("print(1)\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def look(chdir: Path, *program: str, **more: Any) -> dict[str, Any] | None:
    found = find_checkout(Job(program=program or ("true",), python="", chdir=str(chdir), **more))
    return None if found is None else found.make_record()


def test_commit_and_changes_are_found(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    here = {"folder": str(repository), "commit": commit}
    assert look(repository) == here | {"clean": True}
    (repository / "new").write_text("x")  # as a job's output is
    assert look(repository / "src") == here | {"clean": True}
    (repository / "src" / "train.py").write_text("print(2)\n")
    assert look(repository) == here | {"clean": False}
    git(repository, "commit", "-qam", "second")
    second = {"folder": str(repository), "commit": git(repository, "rev-parse", "HEAD")}
    assert look(repository) == second | {"clean": True} != here


def test_commit_is_found_wherever_git_keeps_it(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "branch", "some/branch")
    git(repository, "pack-refs", "--all")
    found = look(repository)
    assert found is not None and found["commit"] == commit
    git(repository, "checkout", "-q", "--detach")
    found = look(repository)
    assert found is not None and found["commit"] == commit
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", str(tree), "some/branch")
    assert look(tree) == {"folder": str(tree), "commit": commit, "clean": True}
    (tree / "src" / "train.py").write_text("")
    git(tree, "commit", "-qam", "in the tree")
    found = look(tree)
    assert found is not None and found["commit"] == git(tree, "rev-parse", "HEAD") != commit


def test_folder_of_the_program_comes_first(repository: Path, tmp_path: Path) -> None:
    path = str(repository / "src" / "train.py")
    for program in ((path,), ("python", path), ("repository/src/train.py",)):
        found = look(tmp_path, *program)
        assert found is not None and found["folder"] == str(repository)
    assert look(tmp_path, "nowhere.py") is look(tmp_path, path, module=True) is None
    (tmp_path / "link.py").symlink_to(path)
    assert look(tmp_path, "link.py") is None


def test_branch_without_a_commit_has_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert look(tmp_path) == {"folder": str(tmp_path), "commit": None, "clean": True}


# What stands in for git, and what is known then.
CLIENTS = {
    "none": ("", None),
    "fails": ("exit 128", None),
    "hangs": ("exec sleep 60", None),
    "has found a change, and hangs": ("echo ' M a'; exec sleep 60", False),
    "has found many changes": ("yes ' M a' | head -n 100000", False),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_git_may_be_missing_or_slow(
    name: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    script, clean = CLIENTS[name]
    folder = tmp_path / "bin"
    folder.mkdir()
    if script:
        shell_script(folder / "git", script)
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}" if script else str(folder))
    if "hangs" in name:
        monkeypatch.setattr(report_file, "_ANSWERS_S", 0.3)
    assert look(repository) == {"folder": str(repository), "commit": commit, "clean": clean}


def test_variables_of_git_mean_another_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    found = look(repository)
    assert found is not None and found["clean"] is True

"""The git checkout that a job's program is in: its commit, and whether it was clean."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

from mcjax_launch.job.job import Job
from mcjax_launch.machine.system import read_system_text

# For the end of a job that was shorter than git's look at a huge checkout.
_ANSWERS_S = 3.0
_COMMIT = re.compile("[0-9a-f]{40,64}")
# git starts no process that stays, writes nothing, and takes no other repository for this one.
_STATUS = ("-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=no")


class Checkout:
    """A git checkout as it is now; git looks for changes while the job runs.

    Args:
        root: folder of the checkout.

    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._commit = _read_commit(root)
        self._git: subprocess.Popen[bytes] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            self._git = subprocess.Popen(
                ["git", "-C", root, *_STATUS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**kept, "GIT_OPTIONAL_LOCKS": "0"},
                start_new_session=True,  # a Ctrl-C is not for git
            )
        except OSError:  # there is no git
            return

    def make_record(self) -> dict[str, Any]:
        """Return the record of the checkout as it was at the start; call it once."""
        clean = None if self._git is None else _wait_for_status(self._git)
        return {"folder": self._root, "commit": self._commit or None, "clean": clean}


def find_checkout(job: Job) -> Checkout | None:
    """Return the git checkout that holds PROGRAM, or else the working directory; None for none."""
    name = next((word for word in job.program[:2] if word.endswith(".py") and not job.module), "")
    path = os.path.join(job.chdir, name)
    folder = os.path.dirname(path) if name and os.path.isfile(path) else job.chdir
    folder = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return Checkout(folder)


def _wait_for_status(git: subprocess.Popen[bytes]) -> bool | None:
    """Return whether git has found no changes; None if it fails, or takes too long."""
    try:
        changes, _ = git.communicate(timeout=_ANSWERS_S)
    except subprocess.TimeoutExpired as late:
        git.kill()
        git.communicate()
        return False if late.output else None
    return None if git.returncode else not changes


def _read_commit(root: str) -> str:
    """Return the commit that a checkout is at, without git; "" if it has none, or is unknown."""
    folder = os.path.join(root, ".git")
    if link := read_system_text(folder):  # `gitdir: ...`, of a worktree or a submodule
        folder = os.path.join(root, link.partition(": ")[2])
    head = read_system_text(os.path.join(folder, "HEAD"))
    _, is_branch, branch = head.partition("ref: ")
    if not is_branch:
        return head if _COMMIT.fullmatch(head) else ""
    common = os.path.join(folder, read_system_text(os.path.join(folder, "commondir")))
    for place in (folder, common):
        if _COMMIT.fullmatch(commit := read_system_text(os.path.join(place, branch))):
            return commit
    return _find_packed(os.path.join(common, "packed-refs"), branch)


def _find_packed(path: str, branch: str) -> str:
    """Return the commit of a branch in a list of branches; "" if it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                commit, _, name = line.strip().partition(" ")
                if name == branch and _COMMIT.fullmatch(commit):
                    return commit
    except OSError:
        pass
    return ""

"""Marked tests when pytest itself runs in the ranks of a job (`mcjax-launch -n 2 -m pytest`).

A marked test then runs in this process, so that a debugger can be used.
"""

import fcntl
import os
from collections import Counter
from pathlib import Path

import pytest
from _pytest.tmpdir import TempPathFactory

from mcjax_launch.python.pytest_plugin import marks
from mcjax_launch.wire import hook_environ


class InPlace:
    """Plugin that runs marked tests in this process; skips those for other numbers of ranks."""

    def __init__(self) -> None:
        self._processes = int(os.environ["JAX_NUM_PROCESSES"])

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        socket = os.environ.get(hook_environ.SOCKET)
        if socket:  # not with --no-hook: the ranks know no folder that is theirs alone
            share_tmp(session.config, _find_base(session.config, Path(socket).parent))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        marked = marks.find(item)
        if marked is None:
            return
        if marked.shape.processes != self._processes:
            pytest.skip(f"for {marked.shape}: this job has {self._processes}")
        import jax

        if not jax.distributed.is_initialized():
            jax.distributed.initialize()


def _find_base(config: pytest.Config, private: Path) -> Path:
    """Return the folder for the temporary folders of this host's ranks.

    The first rank has pytest make it, in its usual place; pytest keeps the last three.

    Args:
        config: configuration of this rank's pytest.
        private: the job's private folder on this host, in which the ranks find its path.

    """
    link = private / "pytest"
    with open(private / "pytest.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not link.is_symlink():
            link.symlink_to(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
    return link.readlink()


class SharedTempPathFactory(TempPathFactory):  # type: ignore[misc]  # it is final
    """Factory of temporary folders that all ranks share: the n-th is the same in each rank.

    Args:
        base: folder that contains them; the process that made it also removes it.

    """

    def __init__(self, base: Path) -> None:
        super().__init__(
            given_basetemp=base,
            retention_count=3,
            retention_policy="all",
            trace=lambda *_: None,
            basetemp=base,
            _ispytest=True,
        )
        self._made: Counter[str] = Counter()

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        basename = self._ensure_relative_to_basetemp(basename)
        name = f"{basename}{self._made[basename]}" if numbered else basename
        self._made[basename] += 1
        path = self.getbasetemp() / name
        path.mkdir(mode=0o700, exist_ok=numbered or self._made[basename] == 1)
        return path


def share_tmp(config: pytest.Config, base: Path) -> None:
    """Make this pytest create its temporary folders in `base`."""
    config._tmp_path_factory = SharedTempPathFactory(base)  # type: ignore[attr-defined]

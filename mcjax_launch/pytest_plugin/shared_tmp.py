"""`tmp_path` and its kin, the same for all ranks."""

from collections import Counter
from pathlib import Path

import pytest
from _pytest.tmpdir import TempPathFactory


class SharedTempPathFactory(TempPathFactory):  # type: ignore[misc]  # it is final
    """Makes folders that other ranks may have made already: the n-th is the same in each.

    Args:
        base: the folder for all of them; whoever made it removes it.

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


def share(config: pytest.Config, base: Path) -> None:
    """Have this pytest make its temporary folders there."""
    base.mkdir(mode=0o700, exist_ok=True)
    config._tmp_path_factory = SharedTempPathFactory(base)  # type: ignore[attr-defined]

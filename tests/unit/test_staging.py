"""Files from the launcher on a host."""

import os
import resource
import stat
from pathlib import Path

import pytest

from mcjax_launch.agent.staging import Staging
from mcjax_launch.wire.messages import StageEntry


def test_staged_file_is_private_until_it_has_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    real, mask = os.chmod, os.umask(0)

    def chmod(path: str, mode: int) -> None:
        modes.append(stat.S_IMODE(os.stat(path).st_mode))
        real(path, mode)

    monkeypatch.setattr(os, "chmod", chmod)
    try:
        staging = Staging(str(tmp_path))
        staging.begin(StageEntry("a", "file", mode=0o640))
        staging.finish()
    finally:
        os.umask(mask)
    assert modes == [0o600]
    assert stat.S_IMODE(os.stat(tmp_path / "stage/a").st_mode) == 0o640


def test_full_disk_is_reported_once(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path))
    staging.begin(StageEntry("a", "file"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            staging.write(bytes(1 << 17))
        staging.write(bytes(1 << 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    staging.finish()
    assert staging.what == "--sync: a"

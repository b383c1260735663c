"""scripts/gpu-check: what it asks has a time limit, and what is missing is one line."""

import sys
from pathlib import Path

import pytest
from gpu_check.command import result_of
from gpu_check.machine import Machine
from gpu_check.probes import Missing, launcher_python
from jobs import alive, eventually, shell_script

pytestmark = pytest.mark.quick

# Does not end by itself, nor by SIGTERM, nor does what it has started.
HANGS = "trap '' TERM; echo started; sleep 1000 & echo $! > {0}/pid; wait; sleep 1000"


def stand_in(path: Path, text: str) -> str:
    return str(shell_script(path, text.format(path.parent)))


def gone(folder: Path) -> bool:
    return not alive(int((folder / "pid").read_text()))


def test_hanging_launcher_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, seconds in {"LIMIT_S": 1, "SPARE_S": 0.0, "GRACE_S": 0.1}.items():
        monkeypatch.setattr(f"gpu_check.machine.{name}", seconds)
    launcher = stand_in(tmp_path / "hangs", HANGS)
    result = result_of("killed", Machine(launcher, sys.executable, tmp_path, False, 1))
    assert result.verdict == "FAILED"
    assert result.seen == "the launcher hung, and was ended after 1 s"
    eventually(lambda: gone(tmp_path))
    assert (tmp_path / "killed.txt").read_text().splitlines()[1:] == ["started"]


def test_launcher_python_needs_click(tmp_path: Path) -> None:
    here = sys.executable
    old = stand_in(tmp_path / "old", "echo python 3 9 1")
    bare = stand_in(tmp_path / "bare", "echo python 3 13 0; echo lacks click")
    hangs = stand_in(tmp_path / "hangs", HANGS)
    assert launcher_python([tmp_path / "none", old, here]) == here
    with pytest.raises(Missing) as missing:
        launcher_python([tmp_path / "none", old, bare, hangs], 1)
    said = str(missing.value)
    assert f"{tmp_path}/none is not there; " in said
    assert f"{old} is Python 3.9, the launcher needs 3.11 or newer; " in said
    assert f"{bare} has no click; {hangs} did not answer within 1 s. Type scripts/install " in said

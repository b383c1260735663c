"""Which Python scripts/install makes .venv with."""

import shutil
import subprocess
from pathlib import Path

import pytest
from jobs import shell_script

pytestmark = pytest.mark.quick

FIND = Path(__file__).resolve().parents[2] / "scripts" / "find-python"


def found(
    folder: Path, pythons: dict[str, bool], *versions: str
) -> "subprocess.CompletedProcess[str]":
    """What it prints where PATH has these alone; whether each is fit."""
    for tool in ("dirname", "sed", "sort"):
        (folder / tool).symlink_to(str(shutil.which(tool)))
    for name, fit in pythons.items():
        shell_script(folder / name, f"exit {0 if fit else 127}")
    env = {"PATH": str(folder)}
    return subprocess.run([FIND, *versions], env=env, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("pythons", "versions", "chosen"),
    [
        ({"python3.11": True, "python3.12": True, "python3": True}, [], "python3.12"),
        ({"python3.13": False, "python3.11": True, "python3.9": True}, [], "python3.11"),
        ({"python3.13": False, "python3": True}, [], "python3"),
        ({"python3.13": True, "python3.11": True}, ["3.11"], "python3.11"),
    ],
)
def test_newest_working_python_is_found(
    tmp_path: Path, pythons: dict[str, bool], versions: list[str], chosen: str
) -> None:
    assert found(tmp_path, pythons, *versions).stdout == f"{tmp_path / chosen}\n"

"""The commands that install the project, from an empty home and a fresh clone."""

import os
import subprocess
from pathlib import Path

import documented
import pytest
from documented import INSTALL
from pages import ROOT

ADDRESS = "https://github.com/mcjax/mcjax-launch"

pytestmark = [
    pytest.mark.nightly,  # it installs jax twice; scripts/package installs the wheel each time
    pytest.mark.timeout(900),  # a package index may be slow
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout of git's"),
]


def test_documented_commands_install_it(tmp_path: Path) -> None:
    """The address leads to this checkout. Those after the first clone are typed there, in its .venv."""
    git = {f"url.{ROOT}.insteadOf": ADDRESS, "safe.directory": "*"}
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    env |= {"HOME": str(tmp_path / "home"), "GIT_CONFIG_COUNT": str(len(git))}
    for number, (key, value) in enumerate(git.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    (tmp_path / "home").mkdir()
    clone = tmp_path / "mcjax-launch"
    folder = tmp_path
    for session in documented.at(INSTALL):
        [step] = session.steps
        if step.command.startswith("git clone") and folder is clone:
            (folder := tmp_path / "elsewhere").mkdir()
        done = subprocess.run(
            ["bash", "-ec", step.command], cwd=folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if "scripts/demo" in step.command:
            assert "[3] process 3 of 4" in done.stdout
            suggested = [line.strip() for line in done.stdout.splitlines() if line[:2] == "  "]
        folder, env["PATH"] = clone, f"{clone}/.venv/bin:{os.environ['PATH']}"
    first, *others = suggested
    scripts = [["bash", "-c", f"{first}\n{line}"] for line in others]
    assert [subprocess.call(script, cwd=clone, env=env) for script in scripts] == [1, 0]
    installed = ["mcjax-launch", "-n", "2", "python", "-c", "import cloudpickle, debugpy, jax"]
    subprocess.run(installed, cwd=tmp_path, env=env, check=True)

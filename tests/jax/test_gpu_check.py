"""scripts/gpu-check works, as far as that can be known without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def gpu_check(
    *arguments: object, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "scripts" / "gpu-check"), "--python", sys.executable]
    return subprocess.run(
        [*command, *map(str, arguments)], env=env, capture_output=True, text=True, timeout=120
    )


@pytest.mark.nightly
def test_gpu_check_rehearsal_passes_on_cpu(tmp_path: Path) -> None:
    names = ["killed", "fork", "hidden"]
    done = gpu_check("--cpu", "--gpus", 2, "--out", tmp_path, *names)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "result.json").read_text())
    killed, fork, hidden = found["checks"]
    assert found["rehearsal"]
    assert [killed["verdict"], fork["verdict"], hidden["verdict"]] == ["ok", "ok", "not run"]
    assert killed["seen"].startswith("rank 1 failed: killed by SIGKILL")
    assert fork["seen"].startswith("ranks 0-1 forked after importing jax")
    assert hidden["seen"] == "in a rehearsal: there is no GPU to hide"
    first, *_, last = (tmp_path / "killed.txt").read_text().splitlines()
    assert first.startswith("$ ") and first.endswith("on_gpus.py killed sum cpu")
    assert last.startswith("exit status 137 after ")
    assert ", a rehearsal on CPU devices (" in done.stdout
    assert "\ngpu-check: 2 ok, 1 not run, in " in done.stdout


def test_gpu_check_needs_a_gpu_in_jax(tmp_path: Path) -> None:
    done = gpu_check("--out", tmp_path / "none", env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 2
    assert " sees no GPU (only cpu)" in done.stdout.splitlines()[-1]
    assert not (tmp_path / "none").exists()

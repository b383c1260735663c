"""scripts/gpu-check works, as far as that can be known without a GPU."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def gpu_check(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "scripts" / "gpu-check"), "--python", sys.executable]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_a_rehearsal(tmp_path: Path) -> None:
    done = gpu_check("--cpu", "--out", tmp_path, "devices", "raises")
    assert done.returncode == 0, done.stdout + done.stderr
    first, devices, raises = done.stdout.splitlines()
    assert ", a rehearsal on CPU devices, jax " in first
    assert devices.startswith("ok       devices: rank 0: [CpuDevice(id=0)] of 2; ")
    assert raises.startswith("ok       raises: rank 1 failed: ValueError: bad batch after ")
    assert (tmp_path / "raises.txt").read_text().startswith("$ ")


def test_what_there_is_not(tmp_path: Path) -> None:
    assert gpu_check("--out", tmp_path, "nonsense").returncode == 2
    done = gpu_check("--out", tmp_path, "--python", "/bin/false")
    assert done.returncode == 2
    assert "has no jax that works" in done.stdout

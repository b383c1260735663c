"""The command in environments that users have: the tests' own has none of the users' choices."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import LAUNCHER, TOKEN, Jobs

# What a container image, a CI system, a shell's profile and a debugging user set.
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "nothing": {},
    "container": {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"},
    "colours": {"FORCE_COLOR": "1", "CLICOLOR": "1", "COLUMNS": "50", "LINES": "10"},
    "no colours": {"NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C"},
    "python": {"PYTHONOPTIMIZE": "2", "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "always"},
    "debugging": {"PYTHONFAULTHANDLER": "1", "PYTHONDEVMODE": "1", "PYTHONUTF8": "0"},
}
PROGRAM = """
import os
import module
rank = os.environ["JAX_PROCESS_ID"]
print("rank", rank, "of", os.environ["JAX_NUM_PROCESSES"])
if rank == "1":
    module.fail()
while True:
    __import__("time").sleep(1)
"""
MODULE = "def fail():\n    raise ValueError('bad batch, \u00e4')\n"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_command_does_the_same_in_every_environment(jobs: Jobs, tmp_path: Path, name: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "module.py").write_text(MODULE)
    chosen = ENVIRONMENTS[name]
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR")} | {"HOME": str(tmp_path)}
    variables = {**kept, **chosen, TOKEN: jobs.token}
    command = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    launcher = [*command, sys.executable, "-m", "mcjax_launch"]
    ended = jobs.run("-n", 2, "program.py", launcher=launcher, cwd=tmp_path)
    assert ended.status == 1, ended.stderr
    out, err = (COLOUR.sub("", text) for text in (ended.stdout, ended.stderr))
    assert "[1] rank 1 of 2\n" in out
    assert "mcjax-launch: rank 1 failed: ValueError: bad batch, ä\n" in err
    assert "module.py:2" in err
    assert "Traceback (most recent call last):" in err and "internal error" not in err
    assert (COLOUR.search(ended.stdout) is not None) == (name == "colours")
    is_compiled = (tmp_path / "__pycache__").exists()
    assert is_compiled == ("PYTHONDONTWRITEBYTECODE" not in chosen)


ALONE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
HAS_UNSHARE = shutil.which("unshare") and subprocess.call([*ALONE, "true"]) == 0


@pytest.mark.skipif(not HAS_UNSHARE, reason="needs a mount namespace of its own")
def test_job_runs_without_proc(jobs: Jobs, tmp_path: Path) -> None:
    """As in some chroots and sandboxes: what is only for show must not fail."""
    hides = 'mount -t tmpfs none /proc && exec "$@"'
    launcher = [*ALONE, "sh", "-c", hides, "sh", *LAUNCHER]
    words = ("-n", 2, "--log-dir", tmp_path / "logs", "--preload", "json", "--setup", "true")
    ended = jobs.run(*words, "sh", "-c", "echo here; sleep 0.2; exit 3", launcher=launcher)
    assert (ended.status, ended.stdout.count("here")) == (3, 2)
    assert "internal error" not in ended.stderr


@pytest.mark.skipif(not HAS_UNSHARE, reason="needs a mount namespace of its own")
def test_host_without_dev_null_is_named(jobs: Jobs) -> None:
    hides = 'exec 3</dev/urandom && mount -t tmpfs none /dev && exec "$@"'
    launcher = [*ALONE, "sh", "-c", hides, "sh", *LAUNCHER]
    ended = jobs.run("-n", 2, "true", launcher=launcher)
    assert (ended.status, ended.report.splitlines()) == (
        255,
        [
            "host localhost: /dev/null: No such file or directory: "
            "mknod -m 666 /dev/null c 1 3 makes it"
        ],
    )

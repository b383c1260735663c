"""What is streamed to a host, in the oldest Python that it may have there."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH
from stand_in_jax import make_stand_in

import mcjax_launch
from mcjax_launch.transport import bootstrap

OLDEST = (3, 9)
VERSION = "import sys; print(*sys.version_info[:2])"
PACKAGE = Path(mcjax_launch.__file__).parent

PROGRAM = """
import os
import sys
import jax.distributed
print("python", *sys.version_info[:2], flush=True)
jax.distributed.initialize()
if os.environ["JAX_PROCESS_ID"] == "1":
    raise ValueError("on purpose")
"""


def version(python: str) -> tuple[int, ...]:
    """The version of an interpreter; () where it does not run (pyenv leaves such names about)."""
    try:
        done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    except OSError:
        return ()
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def known() -> dict[str, tuple[int, ...]]:
    """The Pythons that are here, and their versions."""
    names = [f"python3.{minor}" for minor in range(6, sys.version_info.minor)]
    on_path = filter(None, map(shutil.which, names))
    beside = Path(sys.base_prefix).parent.glob("3.*/bin/python")  # as pyenv lays them out
    found = {path: version(path) for path in (*on_path, *map(str, beside), sys.executable)}
    return {path: number for path, number in found.items() if number}


@pytest.fixture(scope="module")
def python() -> str:
    """The oldest Python here that is not too old; pytest's own if there is no other."""
    fit = {path: number for path, number in known().items() if number >= OLDEST}
    return min(fit, key=lambda path: fit[path])


@pytest.fixture
def hosts(python: str, tmp_path: Path) -> Path:
    """A hosts file of two hosts with that Python."""
    path = tmp_path / "hosts"
    path.write_text(f"a python={python}\nb python={python}\n")
    return path


def test_oldest_python_is_tested(python: str) -> None:
    """Skipped with the name of what stands in, so that a run without a 3.9 says so."""
    if version(python) != OLDEST:
        pytest.skip(f"no Python 3.9 here: what is streamed was tried with {python}")


def test_every_module_compiles(python: str) -> None:
    """Also those that a test without jax does not come to."""
    every = {path.name for path in (PACKAGE / "features").iterdir() if path.name[0] != "_"}
    files = [str(PACKAGE / path) for path in bootstrap.read_streamed_files(every)]
    assert len(files) > 80
    script = "import sys\nfor path in sys.argv[1:]: compile(open(path, 'rb').read(), path, 'exec')"
    done = subprocess.run([python, "-c", script, *files], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_program_runs_on_the_oldest_python(
    jobs: Jobs, python: str, hosts: Path, tmp_path: Path
) -> None:
    """The hook fills in the coordinates and reports the exception."""
    make_stand_in(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ("--hosts", hosts, "--via", FAKE_SSH, "-x", f"PYTHONPATH={tmp_path}")
    ended = jobs.run(*words, "program.py", cwd=tmp_path)
    assert ended.status == 1, ended.stderr
    major, minor = version(python)
    for rank, host in enumerate("ab"):
        assert f"[{rank} {host}] python {major} {minor}\n" in ended.stdout
    assert "[1 b] at " in ended.stdout
    assert "hook failed" not in ended.stderr
    assert "[0 a] listens on " in ended.stdout
    assert "rank 1 on b failed: ValueError: on purpose" in ended.report

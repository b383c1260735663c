"""--black-box: what comes home of a job that fails, hangs or is ended."""

import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH

pytestmark = pytest.mark.quick

WAIT = "import time\ndef wait():\n    print('up', flush=True); time.sleep(100)\nwait()\n"
FAIL = (
    "import os, time\nif os.environ['JAX_PROCESS_ID'] == '1':\n    raise ValueError('bad')\n" + WAIT
)


def box(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


@pytest.mark.only_linux("/proc")
@pytest.mark.parametrize("where", [[], ["--hosts", "a:1,b:2", "--via", FAKE_SSH]], ids=["", "ssh"])
def test_black_box_keeps_stacks_of_ranks_killed_by_another_rank(
    jobs: Jobs, tmp_path: Path, program: Path, where: list[str]
) -> None:
    program.write_text(FAIL)
    folder = tmp_path / "box"
    ended = jobs.run("-n", 3, *where, "--black-box", folder, sys.executable, program, limit=120)
    assert ended.status == 1, ended.stderr
    assert f"black box: {folder}/index.html" in ended.report
    found = box(folder)
    hosts = ["a", "b"] if where else ["localhost"]
    assert {f"{host}/processes.txt" for host in hosts} <= found.keys()
    assert re.search(
        r'^rank 2, pid \d+: "\S+" is ', found[f"{hosts[-1]}/processes.txt"], re.MULTILINE
    )
    assert "program.py" in found[f"{hosts[0]}/stacks.txt"]
    assert "ValueError: bad" in found["output/1.err"]
    page = found["index.html"]
    assert re.search("rank 1 (?:on b )?failed: ValueError: bad", page)
    assert all(f'href="{name}"' in page for name in found if name != "index.html")
    if shutil.which("gdb") or shutil.which("py-spy"):
        assert any(name.startswith(f"{hosts[0]}/native.") for name in found)


def test_black_box_keeps_stacks_when_a_limit_ends_the_job(
    jobs: Jobs, tmp_path: Path, program: Path
) -> None:
    program.write_text(WAIT)
    folder = tmp_path / "box"
    options = ["-n", 2, "--timeout", 2, "--black-box", folder]
    assert jobs.run(*options, sys.executable, program, limit=120).status == 124
    assert "in wait" in box(folder)["localhost/stacks.txt"]


@pytest.mark.parametrize("ends", ["well", "by its user"])
def test_black_box_of_a_normal_end_is_not_written(
    jobs: Jobs, tmp_path: Path, program: Path, ends: str
) -> None:
    program.write_text(WAIT if ends == "by its user" else "print('up')\n")
    folder = tmp_path / "box"
    running = jobs.start("-n", 2, "--black-box", folder, sys.executable, program)
    running.read_until("up", 2)
    if ends == "by its user":
        running.signal(signal.SIGINT)
    assert running.finish(limit=60).status == (0 if ends == "well" else 130)
    assert not folder.exists()


def test_black_box_folder_that_cannot_be_made_is_refused(jobs: Jobs, program: Path) -> None:
    program.write_text("")
    ended = jobs.run("--black-box", program, sys.executable, program)
    assert ended.status == 2
    assert f"--black-box {program}: " in ended.report

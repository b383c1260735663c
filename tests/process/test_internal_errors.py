"""A bug of mcjax-launch, in whichever process: exit 125, one line, and a traceback in a file."""

import shutil
import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs
from remote import FAKE_SSH

import mcjax_launch

PACKAGE = Path(mcjax_launch.__file__).parent
HOSTS = {"here": (), "on other hosts": ("--hosts", "a,b", "--via", FAKE_SSH)}
# Where the bug is: while the module is loaded, and after the first rank has been started.
BUGS = {
    "at its start": ("\n_ENDLESS = ", "\nraise RuntimeError('boom')\n_ENDLESS = "),
    "with ranks": (".started(number)\n", ".started(number); raise RuntimeError('boom')\n"),
}


def with_bug(folder: Path, old: str, new: str) -> list[str]:
    """A launcher whose agent has a bug, as a command."""
    shutil.copytree(PACKAGE, folder / "mcjax_launch")
    module = folder / "mcjax_launch" / "agent" / "main.py"
    source = module.read_text()
    assert source.count(old) == 1
    module.write_text(source.replace(old, new))
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); from mcjax_launch.__main__ import run; run()"
    return [sys.executable, "-c", start]


def check(ended: Ended, host: str) -> None:
    assert ended.status == 125
    line = next(line for line in ended.report.splitlines() if "internal error" in line)
    assert line.startswith(f"{host}internal error in the agent: ")
    assert "boom" in line
    traceback = Path(line.rsplit(" ", 1)[1])
    assert "Traceback" in traceback.read_text() and "boom" in traceback.read_text()
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("where", HOSTS)
def test_a_bug_in_the_agent(jobs: Jobs, tmp_path: Path, where: str, bug: str) -> None:
    launcher = with_bug(tmp_path, *BUGS[bug])
    ended = jobs.run(*HOSTS[where], "sleep", 60, launcher=launcher)
    host = "" if where == "here" else ("host a: " if "host a: " in ended.report else "host b: ")
    check(ended, host)
    for file in Path(jobs.environment()["TMPDIR"]).glob("mcjax-*.txt"):
        file.unlink()


def test_frames_are_shown_where_that_is_wanted(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "echo", "x", env={"MCJAX_DEBUG": "frames"})
    assert ended.status == 0
    lines = ended.report.splitlines()
    assert all(
        line.startswith(("frame from localhost: ", "frame to localhost: ")) for line in lines
    )
    for text in (
        "frame from localhost: Hello(",
        "frame to localhost: Prepare(",
        "frame from localhost: HostFacts(",
        "frame to localhost: Start(",
        "frame from localhost: Started(rank=1, ",
        "frame from localhost: Data(rank=0, stream=1, 2 bytes)",
        "frame from localhost: Exited(rank=0, status=0, ",
        "frame from localhost: Bye(",
    ):
        assert any(line.startswith(text) for line in lines), text

"""A start takes no longer than it must, and what it begins too early leaves nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Jobs

pytestmark = pytest.mark.quick

# What only some runs need, and any may import by an oversight: none of it is for `-n 1 true`.
OF_SOME_RUNS = {
    *("argparse", "bisect", "dataclasses", "difflib", "hashlib", "inspect", "json"),
    *("pickle", "random", "shlex", "shutil", "subprocess", "tempfile", "tokenize", "zlib"),
    "psutil",
    "mcjax_launch.agent.system.portable",
    "mcjax_launch.cli.usage_errors",
    "mcjax_launch.console.aside",
    "mcjax_launch.console.collapse",
    "mcjax_launch.features.explain.rules",
    "mcjax_launch.job.describe",
    "mcjax_launch.features.report.report_file",
    "mcjax_launch.journal.programs",
    "mcjax_launch.schedulers",
    "mcjax_launch.transport.bootstrap",
    "mcjax_launch.transport.staging",
    "mcjax_launch.features.recorder.program_code",
}
# What the launcher leaves to the agent, and the agent to the launcher.
OF_THE_AGENT = {"ctypes", "socket", "mcjax_launch.agent"}
OF_THE_LAUNCHER = {"click", "re", "typing", "mcjax_launch.errors"}


def imported(*words: str) -> set[str]:
    """What Python imports when it is run with these words, but for what it always does here."""

    def seen(*words: str) -> set[str]:
        command = [sys.executable, "-X", "importtime", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
        return {line.rsplit("|", 1)[1].strip() for line in lines}

    return seen(*words) - seen("-c", "pass")


def test_launcher_imports_only_what_it_needs() -> None:
    found = imported("-m", "mcjax_launch", "-n", "1", "true")
    assert {"click", "mcjax_launch.launcher.launcher"} <= found
    assert found & (OF_SOME_RUNS | OF_THE_AGENT) == set()


@pytest.mark.parametrize("words", [["--version"], ["-h"], ["--dry-run", "true"]])
def test_launcher_without_a_job_imports_nothing_that_explains_jobs(words: list[str]) -> None:
    found = imported("-m", "mcjax_launch", *words)
    rooms = ("mcjax_launch.console", "mcjax_launch.features.explain")
    assert "mcjax_launch.cli.command" in found
    assert [name for name in found if name.startswith(rooms)] == []


def test_agent_imports_only_what_it_needs() -> None:
    root = Path(__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); import mcjax_launch.agent.main"
    found = imported("-I", "-S", "-c", code)
    assert {"socket", "mcjax_launch.agent.agent"} <= found
    assert found & (OF_SOME_RUNS | OF_THE_LAUNCHER) == set()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--help"], 0),
        (["--dry-run", "true"], 0),
        ([], 2),
        (["-n", "x", "true"], 2),  # from here on an agent has been forked
        (["--no-such-option", "true"], 2),
        (["-C", "/no/where", "true"], 2),
        (["-n", "2", "no-such-program"], 127),
        (["-n", "2", "true", "--help"], 0),  # it has not, and yet one is needed
    ],
)
def test_early_agent_leaves_nothing(jobs: Jobs, words: list[str], status: int) -> None:
    """Not for a moment: whoever waits for the launcher has waited for it."""
    ended = jobs.run(*words)
    assert (ended.status, jobs.left()) == (status, [])


def test_the_agent_holds_no_stream_and_no_name_of_the_launchers(jobs: Jobs) -> None:
    """Nor does `pkill -f` with the launcher's command mean the agent, which tidies up."""
    running = jobs.start("-n", 1, "sh", "-c", "echo ready; exec sleep 1000")
    running.read_until("ready")
    ours = {Path(f"/proc/{running.process.pid}/fd/{fd}").readlink() for fd in (1, 2)}
    for process in (running.guardian, running.agent):
        theirs = {fd.readlink() for fd in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert not ours & theirs
        assert process.cmdline()[0] == "mcjax_launch agent"
        assert Path(f"/proc/{process.pid}/comm").read_text() == "mcjax_launch ag\n"  # it is short
    running.process.terminate()
    running.finish()


def test_local_files_do_not_shadow_agent_imports(jobs: Jobs, tmp_path: Path) -> None:
    """`python -m mcjax_launch` has the working directory in front of Python's own folders."""
    for name in ("array", "ctypes", "socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    root = str(Path(__file__).parents[2])
    ended = jobs.run("-n", 1, "pwd", cwd=tmp_path, env={"PYTHONPATH": root})
    assert (ended.status, ended.stdout) == (0, f"[0] {tmp_path}\n")


@pytest.mark.parametrize(
    "watch",
    [
        "sys.settrace(lambda *about: None)",
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    ],
)
def test_watched_launcher_is_not_forked(jobs: Jobs, watch: str) -> None:
    code = f"""
import os, sys, threading, time
{watch}
fork = os.fork
def forked():
    raise AssertionError("it was forked")
os.fork = forked
from mcjax_launch.__main__ import run
run()
"""
    ended = jobs.run("-n", 1, "echo", "hi", launcher=[sys.executable, "-c", code])
    assert (ended.status, ended.stdout) == (0, "[0] hi\n")

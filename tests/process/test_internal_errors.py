"""A bug of mcjax-launch, in whichever process: exit 125, one line, and a traceback in a file."""

import shutil
import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs
from remote import FAKE_SSH

import mcjax_launch
from mcjax_launch.wire import frames

PACKAGE = Path(mcjax_launch.__file__).parent
HOSTS = {"here": (), "on other hosts": ("--hosts", "a,b", "--via", FAKE_SSH)}
# Where the bug is: while the module is loaded, and after the first rank has been started.
BUGS = {
    "at its start": ("\n_ENDLESS = ", "\nraise RuntimeError('boom')\n_ENDLESS = "),
    "with ranks": (
        "self.supervisor.on_rank_start(number)\n",
        "self.supervisor.on_rank_start(number); raise RuntimeError('boom')\n",
    ),
}


# What keeps an agent from having a folder of its own.
DISKS = {
    "that is read-only": (
        "machine/temporary_folder.py",
        '_OTHERS = ("/tmp", "/var/tmp", ',
        '_OTHERS = ("/proc", ',
    ),
    "that is full": ("agent/main.py", 'open(path, "wb")', 'open("/dev/full", "wb")'),
}


def with_bug(folder: Path, old: str, new: str, name: str = "agent/agent.py") -> list[str]:
    """A launcher with a bug, or with one of the system's that it meets, as a command."""
    shutil.copytree(PACKAGE, folder / "mcjax_launch")
    module = folder / "mcjax_launch" / name
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
def test_bug_in_the_agent_is_reported(jobs: Jobs, tmp_path: Path, where: str, bug: str) -> None:
    launcher = with_bug(tmp_path, *BUGS[bug])
    ended = jobs.run(*HOSTS[where], "sleep", 60, launcher=launcher)
    host = "" if where == "here" else ("host a: " if "host a: " in ended.report else "host b: ")
    check(ended, host)
    for file in Path(jobs.environment()["TMPDIR"]).glob("mcjax-*.txt"):
        file.unlink()


@pytest.mark.parametrize("where", HOSTS)
def test_unwritable_temporary_folder_has_a_fallback(jobs: Jobs, where: str) -> None:
    ended = jobs.run(*HOSTS[where], "true", env={"TMPDIR": "/proc"})
    assert (ended.status, ended.report) == (0, "")


# On the launcher's own host nothing is written before the ranks are started.
@pytest.mark.parametrize(
    ("where", "disk"),
    [("here", "that is read-only"), *(("on other hosts", disk) for disk in DISKS)],
)
def test_disk_error_is_no_internal_error(jobs: Jobs, tmp_path: Path, where: str, disk: str) -> None:
    name, old, new = DISKS[disk]
    launcher = with_bug(tmp_path, old, new, name)
    env = {"TMPDIR": "/proc"} if disk == "that is read-only" else {}
    ended = jobs.run(*HOSTS[where], "true", launcher=launcher, env=env)
    assert ended.status == 255
    host = "localhost" if where == "here" else "a" if "host a: " in ended.report else "b"
    (line,) = ended.report.splitlines()
    assert line.startswith(f"host {host}: cannot use /"), line
    assert "; set TMPDIR to another directory" in line
    assert "Traceback" not in ended.stderr and "internal error" not in ended.stderr


@pytest.mark.parametrize("verbose", [True, False])
def test_bug_in_a_hint_loses_only_the_hint(jobs: Jobs, tmp_path: Path, verbose: bool) -> None:
    module, old = "features/explain/hints.py", "    error = find_known_error(text)\n"
    launcher = with_bug(tmp_path, old, "    raise RuntimeError('boom')\n", module)
    options = ["-v"] if verbose else []
    ended = jobs.run(*options, "bash", "-c", "echo Out of memory >&2; exit 3", launcher=launcher)
    said = ended.report.splitlines()
    assert ended.status == 3
    assert "rank 0 failed: exit status 3" in said
    assert ("a hint failed: RuntimeError('boom'); please report this" in said) is verbose
    assert "internal error" not in ended.stderr


# What a client may do to the bytes from its agent, or to those to it, and how that is explained;
# other ways are in tests/unit/test_mangling.py.
CHANGES = {
    "line ends": ("data.replace(b'\\n', b'\\r\\n')", "data", "(line ends have become CR LF)"),
    "the sources": ("data", "data.replace(b'\\n', b'\\r\\n')", "zlib.error"),
    "the launcher's messages": (
        "data",
        "b'\\r\\n' + data if b'Start' in data and not first else data",
        "its agent was stopped by a malformed message from the launcher (",
    ),
}
MANGLES = """
import os, subprocess, sys, threading
agent = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def copy(source, target, change):
    first = True
    while data := os.read(source, 1 << 20):
        os.write(target, change(data, first))
        first = False
threading.Thread(
    target=copy, args=(0, agent.stdin.fileno(), lambda data, first: {there}), daemon=True
).start()
copy(agent.stdout.fileno(), 1, lambda data, first: {back})
os._exit(agent.wait())
"""


@pytest.mark.parametrize("name", CHANGES)
def test_altered_bytes_in_a_connection_are_explained(jobs: Jobs, tmp_path: Path, name: str) -> None:
    """What came instead of a message is said in words, and what the connection has to do."""
    back, there, said = CHANGES[name]
    program = tmp_path / "client.py"
    program.write_text(MANGLES.replace("{back}", back).replace("{there}", there))
    via = f"{sys.executable} {program} {{host}} --"
    ended = jobs.run("--hosts", "a", "--via", via, "sleep", "60")
    assert ended.status == 255, ended.stderr
    lines = [line for line in ended.report.splitlines() if line.startswith("host a: ")]
    assert said in lines[-1]
    assert frames.UNCHANGED in lines[-1]
    assert "[]" not in ended.report


def test_debug_variable_shows_frames(jobs: Jobs) -> None:
    ended = jobs.run("-n", 2, "echo", "x", env={"MCJAX_DEBUG": "frames"})
    assert ended.status == 0
    lines = ended.report.splitlines()
    shown = ("frame from localhost: ", "frame to localhost: ")
    assert [line for line in lines if not line.startswith(shown)] == []
    for text in (f"{shown[0]}Started(rank=1, ", f"{shown[0]}Data(rank=0, ", f"{shown[1]}Start("):
        assert any(line.startswith(text) for line in lines), text

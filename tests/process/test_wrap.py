"""--wrap: ranks under another command, whose end is theirs."""

import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH

PYTHON = sys.executable

# Ends as $1 says, in rank 1; a helper's end is none of the rank's.
PROGRAM = """
import os, signal, subprocess, sys
subprocess.run([sys.executable, "-c", "raise SystemExit(9)"])
if os.environ["JAX_PROCESS_ID"] == "1":
    how = sys.argv[1]
    if how == "raise":
        raise ValueError("bad")
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
    os._exit(int(how))
"""

# Swallows how its command ends, and lets in no hook of its own.
SWALLOWS = "import subprocess, sys; subprocess.run(sys.argv[1:]); print('wrapped', flush=True)"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def wrapper(source: str) -> str:
    return f'{PYTHON} -IS -c "{source}"'


@pytest.mark.parametrize(
    ("how", "status", "why"),
    [
        ("0", 0, ""),
        ("3", 3, "exit status 3"),
        ("raise", 1, "ValueError: bad"),
        ("SIGSEGV", 139, "exit status 139"),
    ],
)
def test_wrapper_passes_the_exit_status_on(
    jobs: Jobs, program: Path, how: str, status: int, why: str
) -> None:
    ended = jobs.run("-n", 2, "--wrap", """1:sh -c '"$@"; exit $?' sh""", program, how)
    assert ended.status == status, ended.stderr
    assert (f"rank 1 failed: {why}" in ended.report) == bool(status)


def test_exit_status_of_the_wrapper_counts(jobs: Jobs, program: Path) -> None:
    """Its own end is the rank's."""
    ended = jobs.run("-n", 2, "--wrap", f"1:{wrapper(SWALLOWS)}", program, "3")
    assert (ended.status, ended.report) == (0, "")
    assert "[1] wrapped" in ended.stdout and "[0] wrapped" not in ended.stdout


TOOLS = {
    "strace": "strace -f -o {folder}/trace{{process_id}}",
    "gdb": "gdb -q -nx -batch -return-child-result -ex run --args",
    "numactl": "numactl --physcpubind=+0",
    "perf": "perf record -q -o {folder}/perf{{process_id}}",
}


def tool(name: str) -> object:
    missing = shutil.which(shlex.split(TOOLS[name])[0]) is None
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"needs {name}"))


@pytest.mark.parametrize("name", [tool(name) for name in TOOLS])
def test_common_tools_work_as_wrappers(
    jobs: Jobs, program: Path, tmp_path: Path, name: str
) -> None:
    command = TOOLS[name].format(folder=tmp_path)
    ended = jobs.run("-n", 2, "--wrap", f"1:{command}", program, "3")
    assert ended.status == 3, ended.stderr
    written = {path.name for path in tmp_path.iterdir()} - {program.name}
    assert all("1" in name for name in written)
    assert bool(written) == ("{folder}" in TOOLS[name])


WAITS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
print("got it", flush=True)
"""


def test_a_signal_goes_to_the_program(jobs: Jobs, tmp_path: Path) -> None:
    """The wrapper would die of what its program handles."""
    (tmp_path / "waits.py").write_text(WAITS)
    running = jobs.start("--wrap", wrapper(SWALLOWS), tmp_path / "waits.py")
    running.read_until("ready")
    running.signal(signal.SIGUSR1)
    ended = running.finish()
    assert (ended.status, ended.stdout.splitlines()) == (
        0,
        ["[0] ready", "[0] got it", "[0] wrapped"],
    )


def test_wrappers_nest_and_have_placeholders(jobs: Jobs) -> None:
    """The first is outermost."""
    options = ["--wrap", "env A={process_id} B=1", "--wrap", "1:env 'B=of {num_processes}'"]
    ended = jobs.run("-n", 2, *options, "sh", "-c", 'echo "$A $B"')
    assert sorted(ended.stdout.splitlines()) == ["[0] 0 1", "[1] 1 of 2"]


@pytest.mark.parametrize("where", [[], ["--hosts", "a,b", "--via", FAKE_SSH]], ids=["", "ssh"])
def test_missing_wrapper_is_refused(jobs: Jobs, where: list[str], program: Path) -> None:
    ended = jobs.run("-n", 2, *where, "--wrap", "1:no-such-tool -f", program, "0")
    assert (ended.status, ended.stdout) == (127, "")
    host = "host b: " if where else ""
    assert ended.report == f"{host}--wrap no-such-tool: not found in PATH"

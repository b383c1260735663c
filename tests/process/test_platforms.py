"""Other systems than Linux, as far as Linux can show them; TEST_PORTABLE=1 runs many more tests so.

What differs is in docs/security.md.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import jobs as harness
import not_linux
import psutil
import pytest
from jobs import Jobs, eventually

ROOT = Path(__file__).parents[2]
PORTABLE = {"MCJAX_PORTABLE": "1"}


@pytest.fixture
def launcher() -> list[str]:
    """One for which nothing exists that Linux alone has."""
    return [sys.executable, not_linux.launcher()]


# --- that the tests mean something ---

USES = (
    "open('/proc/self/stat')",
    "__import__('os').listdir('/proc')",
    "open('/sys/devices/system/cpu/online')",
    "__import__('ctypes').CDLL(None).prctl",
    "__import__('fcntl').fcntl(0, 1031, 4096)",
    "__import__('os').waitid",
    "__import__('os').pidfd_open",
    "__import__('os').sched_getaffinity",
    "__import__('_signal').SIGRTMIN",
    "__import__('select').epoll",
    "__import__('_socket').SO_PEERCRED",
    "__import__('os').memfd_create",
)
# Code of ours that uses each, and prints what came of it; and the first four in code of psutil's.
ASKS = f"""
import mcjax_launch
def tries(use, file):
    try:
        exec(compile(use, file, 'exec'))
        return 'works'
    except (AttributeError, SystemError) as error:
        return f'{{type(error).__name__}}: {{error}}'
for use in {USES}:
    print(tries(use, 'mcjax_launch/agent/x.py'))
for use in {USES[:4]}:
    print(tries(use, 'psutil/x.py'))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs what Linux alone has")
def test_linux_only_calls_fail_in_the_portable_copy(launcher: list[str]) -> None:
    """A negative control: that code of ours which uses it fails."""
    folder = os.path.dirname(launcher[-1])
    command = [sys.executable, "-c", ASKS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    refused = ("SystemError: only Linux has", "AttributeError: module")
    assert [line for line in said[: len(USES)] if not line.startswith(refused)] == []
    assert said[len(USES) :] == ["works"] * 4


# --- a job ---


def test_verbose_launcher_says_that_it_is_portable(jobs: Jobs, launcher: list[str]) -> None:
    ended = jobs.run("-v", "-n", 1, "true", env=PORTABLE, launcher=launcher)
    assert (
        "localhost: portable mode, without the features that need Linux"
        in ended.report.splitlines()
    )
    if not harness.PORTABLE:
        assert "portable" not in jobs.run("-v", "-n", 1, "true").report


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_leftover_processes_are_found_without_linux(
    jobs: Jobs, launcher: list[str], tmp_path: Path, signum: int
) -> None:
    """By its parent, its session, or its environment; also by the guardian of a killed agent."""
    left = f"{sys.executable} -c 'import time; time.sleep(1000)' & echo pid $!"
    script = f"""
{left}
( setsid sh -c "{left.replace("$", chr(92) + "$")}; exec sleep 1000" & )
setsid sleep 1000 & echo pid $!
env -i PATH="$PATH" setsid sleep 1000 & echo pid $!
echo ready; exec sleep 1000
"""
    running = jobs.start(
        "-n", 1, "--grace", "0.3", "sh", "-c", script, env=PORTABLE, launcher=launcher
    )
    running.read_until("ready")
    running.read_until("pid ", 4)
    agent = running.agent
    ours = [process for process in agent.children(recursive=True) if process.pid != agent.pid]
    pids = {*running.pids(), *(process.pid for process in ours)}
    assert len(pids) >= 5
    if signum == signal.SIGKILL:
        # What has no mark is known to the guardian by its parent, which has to be there.
        agent.kill()
        assert running.finish().status == 255
    else:
        running.signal(signum)
        assert running.finish().status == 143
    eventually(lambda: not any(map(harness.alive, pids)), 10)


LEFT = {
    "by its session": "env -i sleep {long} &",
    "by its mark": "( setsid sleep {long} & ) &",
}


@pytest.mark.parametrize(("way", "status"), [("by its session", 3), ("by its mark", 0)])
def test_processes_left_by_an_ended_rank_are_killed(
    jobs: Jobs, launcher: list[str], way: str, status: int
) -> None:
    """Nothing tells of its end, and it is over before the launcher is."""
    long = f"{1000 + uuid.uuid4().int % 10**6}"
    script = f"{LEFT[way].format(long=long)} exit {status}"
    words = ["--stall-timeout", 4, "sh", "-c", script]  # which has the agent look
    assert jobs.run(*words, env=PORTABLE, launcher=launcher).status == status
    running = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", long] not in running


def test_the_mark_of_another_job_is_left_alone(jobs: Jobs, launcher: list[str]) -> None:
    """Two jobs beside each other: what ends one does not end the other."""
    first, second = (
        jobs.start("-n", 1, "sh", "-c", "setsid sleep 1000 & echo ready; exec sleep 1000",
                   env=PORTABLE, launcher=launcher)
        for _ in range(2)
    )  # fmt: skip
    for job in (first, second):
        job.read_until("ready")
    first.signal(signal.SIGTERM)
    assert first.finish().status == 143

    def sleeping() -> int:
        names = [process.name() for process in second.guardian.children(recursive=True)]
        return names.count("sleep")

    eventually(lambda: sleeping() == 2)
    second.signal(signal.SIGTERM)
    assert second.finish().status == 143


BECOMES = """
import os, time
if os.environ["JAX_PROCESS_ID"] == "0":
    os.execvp("sh", ["sh", "-c", "echo became; sleep 2; echo lived"])
def wait(): print("ready", flush=True) or time.sleep(2)
wait()
"""


def test_stack_request_ends_no_process(jobs: Jobs, launcher: list[str]) -> None:
    """Also not who has no hook any more, or never had one."""
    running = jobs.start("-n", 2, sys.executable, "-c", BECOMES, env=PORTABLE, launcher=launcher)
    running.read_until("ready")
    running.read_until("became")
    running.signal(signal.SIGQUIT)
    running.read_until("lived")
    ended = running.finish()
    assert ended.status == 0
    assert "> <string>:5 in wait" in ended.report


def test_bind_cores_is_refused(jobs: Jobs, launcher: list[str]) -> None:
    ended = jobs.run("-n", 2, "--bind-cores", "on", "true", env=PORTABLE, launcher=launcher)
    assert ended.status == 2
    assert (
        "--bind-cores on: this system cannot bind processes to cores; leave it out" in ended.report
    )


BINDS = """
import socket
try:
    socket.socket().bind(("127.0.0.1", {coordinator_port}))
    print("free")
except OSError:
    print("held")
"""


def test_the_coordinators_port_is_free_when_the_ranks_start(
    jobs: Jobs, launcher: list[str]
) -> None:
    """Where a connection could reach who holds it: gRPC takes it at once."""
    words = ["-n", 1, sys.executable, "-c", BINDS]
    assert jobs.run(*words, env=PORTABLE, launcher=launcher).stdout == "[0] free\n"
    if not harness.PORTABLE:
        assert jobs.run(*words).stdout == "[0] held\n"


def test_preload_starts_ranks_afresh(jobs: Jobs, launcher: list[str]) -> None:
    words = ["-n", 2, "--preload", "abc", sys.executable, "-c", "print('here')"]
    ended = jobs.run(*words, env=PORTABLE, launcher=launcher)
    assert (ended.status, ended.stdout.count("here")) == (0, 2)
    assert ended.report == "--preload: it needs Linux and /proc; the ranks are started afresh"


def test_an_idle_job_costs_nothing(jobs: Jobs, launcher: list[str]) -> None:
    running = jobs.start(
        "-n", 2, "sh", "-c", "echo ready; exec sleep 1000", env=PORTABLE, launcher=launcher
    )
    running.read_until("ready", 2)
    watched = (psutil.Process(running.process.pid), running.guardian, running.agent)

    def switches(pause_s: float) -> list[int]:
        time.sleep(pause_s)  # in which nothing is to happen
        return [process.num_ctx_switches().voluntary for process in watched]

    eventually(lambda: switches(0) == switches(0.1))
    before, after = switches(0), switches(0.5)
    assert all(late - early <= 3 for early, late in zip(before, after, strict=True))
    running.signal(signal.SIGTERM)
    running.finish()


# --- what else a system may lack ---

NO_PSUTIL = f"""
import sys
sys.modules["psutil"] = None
sys.path[:0] = [{str(ROOT)!r}]
from mcjax_launch.agent.main import main
main("")
"""


def test_missing_psutil_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", NO_PSUTIL],
        env={**os.environ, **PORTABLE, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 255
    assert done.stderr == (
        "mcjax-launch agent: psutil is missing, which this system needs: "
        f"{sys.executable} -m pip install psutil\n"
    )
    assert list(tmp_path.iterdir()) == []


# As Windows' Python: these modules are not there, nor are most signals.
WINDOWS = """
import sys, _signal, os
sys.platform = "win32"
for name in ("fcntl", "termios", "resource", "pwd", "grp", "tty", "pty", "posix", "click"):
    sys.modules[name] = None
for name in [name for name in vars(_signal) if name.startswith(("SIG", "pthread", "alarm"))]:
    if name not in ("SIGINT", "SIGTERM", "SIGABRT", "SIG_DFL", "SIG_IGN"):
        delattr(_signal, name)
for name in ("fork", "setsid", "posix_spawn", "killpg", "wait4", "set_blocking"):
    delattr(os, name)
sys.argv = ["mcjax-launch", *sys.argv[1:]]
"""


@pytest.mark.parametrize(
    "run",
    [
        "from mcjax_launch.__main__ import run; run()",  # the command, as pip installs it
        "import runpy; runpy.run_module('mcjax_launch', run_name='__main__', alter_sys=False)",
    ],
)
def test_windows_is_refused(run: str) -> None:
    command = [sys.executable, "-c", WINDOWS + run, "-n", "4", "toy.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == (
        "mcjax-launch: does not run on Windows: run it in WSL (`wsl --install`), "
        "which counts as Linux\n"
    )
    assert (done.returncode, done.stdout) == (2, "")

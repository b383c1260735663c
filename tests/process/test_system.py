"""What the agent asks of the operating system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcjax_launch.kernel.agent.system import system
from mcjax_launch.kernel.agent.system.unix import SpawnError

pytestmark = pytest.mark.quick

# In an interpreter of its own: it waits for all children, whosever they are.
WAITS = """
import os, sys
from mcjax_launch.kernel.agent.system import system, unix
if sys.argv[1] == "without waitid":
    del os.waitid
null = os.open(os.devnull, os.O_RDWR)
pid = system.spawn(["sh", "-c", sys.argv[2]], dict(os.environ), "/", (null, null, 2))
while (ended := system.ended_child()) is None:
    pass
assert ended.pid == pid
_, peak_kib = system.reap(pid)
try:
    system.ended_child()
except unix.Childless:
    print(ended.status, peak_kib > 100)
"""


@pytest.mark.parametrize("way", ["with waitid", "without waitid"])
@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", -9), ("true", 0)])
def test_child_processes_are_waited_for(way: str, script: str, status: int) -> None:
    command = [sys.executable, "-c", WAITS, way, script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{status} True\n"


@pytest.mark.parametrize(
    ("argv", "cwd", "errno", "what"),
    [
        (["no-such-command"], "/", 2, "no-such-command"),
        (["/etc/passwd"], "/", 13, "/etc/passwd"),
        (["true"], "/no/where", 2, "/no/where"),
    ],
)
def test_spawn_error_names_what_failed(argv: list[str], cwd: str, errno: int, what: str) -> None:
    with open(os.devnull, "r+b") as null, pytest.raises(SpawnError) as caught:
        system.spawn(argv, dict(os.environ), cwd, (null.fileno(),) * 3)
    assert (caught.value.errno, caught.value.what) == (errno, what)


def test_a_child_starts_with_default_signals() -> None:
    script = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
    program = f"""
import os, signal
from mcjax_launch.kernel.agent.system import system
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
signal.signal(signal.SIGINT, signal.SIG_IGN)
null = os.open(os.devnull, os.O_RDWR)
os.waitpid(system.spawn(["sh", "-c", {script!r}], dict(os.environ), "/", (null, 1, 2)), 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # Signals 32 and 33 are the C library's own.
    masks = [int(line.split()[1], 16) & 0x7FFFFFFF for line in done.stdout.splitlines()]
    assert masks == [0, 0], done


SPAWNS = """
import os, resource, sys
from mcjax_launch.kernel.agent.system import system
from mcjax_launch.kernel.wire.rank_process import RankSettings
null = os.open(os.devnull, os.O_RDWR)
limit = (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
held = resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0)
core = min(os.sched_getaffinity(0))
settings = RankSettings(cores=(core,))
script = "ulimit -n; grep Cpus_allowed_list /proc/$$/status; pwd; echo $PATH; ps -o sid= -p $$"
command, environ = ["my-sh", "-c", script], {"PATH": sys.argv[1]}
pid = system.spawn(command, environ, "/", (null, 1, 2), settings, limit)
os.waitpid(pid, 0)
assert held == (resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0))
print(pid, core)
"""


def test_child_starts_with_its_settings(tmp_path: Path) -> None:
    """Its program is the first that can be run, as a shell would find it."""
    places = [tmp_path / name for name in ("missing", "plain", "right")]
    for place in places[1:]:
        place.mkdir()
    (places[1] / "my-sh").write_text("not executable")
    (places[2] / "my-sh").symlink_to("/bin/sh")
    path = ":".join([*map(str, places), "/usr/bin", "/bin"])
    command = [sys.executable, "-c", SPAWNS, path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *seen, told = done.stdout.splitlines()
    pid, core = told.split()
    assert [line.split()[-1] for line in seen] == ["100", core, "/", path, pid]


def test_ended_children_are_found_without_reaping() -> None:
    alive, gone = (subprocess.Popen(["sleep", time]) for time in ("100", "0"))
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert system.ending({alive.pid: 5, gone.pid: 6}) == {6}
    finally:
        alive.kill()
        for process in (alive, gone):
            process.wait()

"""What the agent asks of the operating system."""

import os
import subprocess
import sys

import pytest

from mcjax_launch.agent.system import system
from mcjax_launch.agent.system.unix import Invocation, SpawnError

pytestmark = pytest.mark.quick

# In an interpreter of its own: it waits for all children, whosever they are.
WAITS = """
import os, sys
from mcjax_launch.agent.system import system, unix
if sys.argv[1] == "without waitid":
    del os.waitid
null = os.open(os.devnull, os.O_RDWR)
program = unix.Invocation(["sh", "-c", sys.argv[2]], dict(os.environ), "/", (null, null, 2))
pid = system.spawn(program)
while (ended := system.find_ended_child()) is None:
    pass
assert ended.pid == pid
_, peak_kib = system.reap(pid)
try:
    system.find_ended_child()
except unix.Childless:
    print(ended.status, peak_kib > 100)
"""


@pytest.mark.parametrize("way", ["with waitid", "without waitid"])
@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", -9)])
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
        system.spawn(Invocation(argv, dict(os.environ), cwd, (null.fileno(),) * 3))
    assert (caught.value.errno, caught.value.what) == (errno, what)


TOGETHER = """
import os, sys
from mcjax_launch.agent.system import system, unix
from mcjax_launch.agent.system.unix import Invocation
null = os.open(os.devnull, os.O_RDWR)
waited, waker = os.pipe()

class Waiting:
    def apply(self, pid=0):
        os.read(waited, 1)

class Waking:
    def apply(self, pid=0):
        os.write(waker, b"!")

def make(argv, settings=unix.PLAIN, cwd="/"):
    return Invocation(argv, dict(os.environ), cwd, (null, null, 2), settings)

spawned = system.spawn_all(
    [
        make(["sh", "-c", "exit 3"], Waiting()),
        make(["no-such-command"]),
        make(["/etc/passwd"]),
        make(["true"], cwd="/no/where"),
        make(["sh", "-c", "exit 4"], Waking()),
    ]
)
for found in spawned:
    if isinstance(found, int):
        print(os.waitstatus_to_exitcode(os.waitpid(found, 0)[1]))
    else:
        print(found.errno, found.what)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("none left")
"""


@pytest.mark.only_linux("parent-death signals")
def test_programs_start_together_and_each_error_names_its_own() -> None:
    """The first can begin only when the last has been forked."""
    command = [sys.executable, "-c", TOGETHER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=150)
    lines = ["3", "2 no-such-command", "13 /etc/passwd", "2 /no/where", "4", "none left"]
    assert done.stdout.splitlines() == lines


def test_a_child_starts_with_default_signals() -> None:
    script = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
    program = f"""
import os, signal
from mcjax_launch.agent.system import system
from mcjax_launch.agent.system.unix import Invocation
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
signal.signal(signal.SIGINT, signal.SIG_IGN)
null = os.open(os.devnull, os.O_RDWR)
program = Invocation(["sh", "-c", {script!r}], dict(os.environ), "/", (null, 1, 2))
os.waitpid(system.spawn(program), 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # Signals 32 and 33 are the C library's own.
    masks = [int(line.split()[1], 16) & 0x7FFFFFFF for line in done.stdout.splitlines()]
    assert masks == [0, 0], done


def test_ended_children_are_found_without_reaping() -> None:
    alive, gone = (subprocess.Popen(["sleep", time]) for time in ("100", "0"))
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert system.select_ending({alive.pid: 5, gone.pid: 6}) == {6}
    finally:
        alive.kill()
        for process in (alive, gone):
            process.wait()

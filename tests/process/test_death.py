"""Which ranks end, how, how soon, and that no process is left: the table of exit statuses, row by row.

Programs without JAX: what JAX adds to it is in test_jax.py.
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest
from conftest import check_nothing_left
from jobs import LAUNCHER, Jobs, alive, eventually
from stand_in_jax import make_stand_in

pytestmark = pytest.mark.quick

# A rank that says so when it is ready, and then waits.
WAIT = "echo ready pid $$; exec sleep 1000"
DEAF = "trap '' TERM INT HUP; echo ready pid $$; while :; do sleep 1000; done"


def bash(script: str) -> tuple[str, str, str]:
    return "bash", "-c", script


def only(rank: int, script: str, others: str = WAIT) -> tuple[str, str, str]:
    """One rank runs `script` once the others have had the time to make a file each."""
    wait = "until [ $(ls $MARKS | wc -l) = $((JAX_NUM_PROCESSES - 1)) ]; do sleep 0.01; done"
    return bash(
        f"if [ $JAX_PROCESS_ID = {rank} ]; then {wait}; {script}\n"
        f"else {(_TRAP_FIRST.match(others) or [''])[0]} touch $MARKS/$JAX_PROCESS_ID; {others}\nfi"
    )


# What a rank ignores it must ignore before it says that it is there.
_TRAP_FIRST = re.compile(r"(trap '' [A-Z ]+;)?")


@pytest.fixture(autouse=True)
def _marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path))


@pytest.mark.parametrize("rank", [0, 3])
def test_exit_status_of_a_rank_is_the_jobs(jobs: Jobs, rank: int) -> None:
    ended = jobs.run("-n", 4, *only(rank, "echo last words >&2; exit 7"))
    assert ended.status == 7
    assert f"rank {rank} failed: exit status 7" in ended.report
    assert f"[{rank}] last words\n" in ended.stderr
    assert "the 3 other ranks: ended by SIGTERM" in ended.report
    assert ended.seconds < 10


def test_shared_memory_of_killed_ranks_is_removed(jobs: Jobs, tmp_path: Path) -> None:
    program = """if 1:
        import os, signal, sys, time
        from multiprocessing.shared_memory import SharedMemory
        if os.environ["JAX_PROCESS_ID"] == "1":
            while not os.path.exists("name"):
                time.sleep(0.01)
            sys.exit(3)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        memory = SharedMemory(create=True, size=64)
        open("new", "w").write(memory.name)
        os.rename("new", "name")
        time.sleep(1000)
    """
    ended = jobs.run("-n", 2, "--grace", "0.2", sys.executable, "-c", program, cwd=tmp_path)
    assert ended.status == 3
    assert ended.seconds < 10
    with pytest.raises(FileNotFoundError):
        SharedMemory((tmp_path / "name").read_text())


def test_ranks_ignoring_signals_are_killed_after_the_grace(jobs: Jobs) -> None:
    running = jobs.start("-n", 3, "--grace", "0.5", *only(1, "exit 3", DEAF))
    ended = running.finish()
    assert ended.status == 3
    assert ended.seconds < 10
    assert "killed (still running after SIGTERM)" in ended.report


# A grandchild, one in a session of its own, and daemons: deaf, silent and stopped.
STRAYS = """
sleep 1000 &
setsid sleep 1000 &
( setsid bash -c "trap '' TERM HUP INT; while :; do sleep 1000; done" & )
( setsid sleep 1000 < /dev/null > /dev/null 2>&1 & )
( setsid bash -c 'kill -STOP $$' & )
"""


@pytest.mark.parametrize("status", [0, 4])
def test_stray_processes_are_killed(jobs: Jobs, status: int) -> None:
    """Also strays that hold a rank's stdout, as most of these do."""
    ended = jobs.run("-n", 2, "--grace", "0.5", *bash(f"{STRAYS}\nexit {status}"))
    assert ended.status == status
    assert jobs.left() == []  # not even for a moment
    assert ended.seconds < 10
    assert ended.stderr.count("outlived their ranks") == (status == 0)


def test_processes_that_outlive_successful_ranks_are_named(jobs: Jobs, tmp_path: Path) -> None:
    """Also a process in a session of its own, whose rank only its environment shows."""
    record = tmp_path / "record.json"
    script = (
        "if [ $JAX_PROCESS_ID = 0 ]; then sleep 1000 & else setsid sleep 999 & fi; echo left $!"
    )
    ended = jobs.run("-n", 2, "--report", record, *bash(script))
    assert ended.status == 0
    pids = dict(re.findall(r"\[(\d)\] left (\d+)", ended.stdout))
    commands = {"0": "sleep 1000", "1": "sleep 999"}
    named = ", ".join(f"{commands[rank]} (rank {rank}, pid {pids[rank]})" for rank in "01")
    assert f"ended 2 processes that outlived their ranks: {named}; " in ended.report
    assert "`wait` in a shell script" in ended.report
    left = json.loads(record.read_text())["attempts"][0]["leftovers"]
    assert sorted(left, key=lambda each: each["rank"]) == [
        {"rank": rank, "pid": int(pids[str(rank)]), "command": commands[str(rank)]}
        for rank in range(2)
    ]


def test_many_processes_that_outlive_ranks_are_counted(jobs: Jobs) -> None:
    ended = jobs.run("-n", 4, *bash("sleep 1000 & sleep 1000 & true"))
    assert ended.stderr.count("outlived") == 1
    assert "ended 8 processes that outlived their ranks: sleep 1000 (rank 0, " in ended.report
    assert " and 5 more; " in ended.report


_HELPERS = """if 1:
    import multiprocessing, os
    from multiprocessing import resource_tracker
    if __name__ == "__main__":
        resource_tracker.ensure_running()
        multiprocessing.set_start_method("forkserver")
        with multiprocessing.Pool(1) as pool:
            print(pool.map(abs, [-1]))
"""


@pytest.mark.parametrize("program", ["sleep 0.1 & true", "helpers", "sleep 1000 & wait_or_stop"])
def test_processes_that_end_by_themselves_are_not_named(
    jobs: Jobs, tmp_path: Path, program: str
) -> None:
    """Nor Python's own helpers, nor what ranks that were stopped have left."""
    if program == "helpers":
        (tmp_path / "helpers.py").write_text(_HELPERS)
        running = jobs.start("-n", 2, tmp_path / "helpers.py")
    else:
        running = jobs.start("-n", 2, *bash(program.replace("wait_or_stop", WAIT)))
    if program.endswith("wait_or_stop"):
        running.read_until("ready", 2)
        running.signal(signal.SIGTERM)
    assert "outlived" not in running.finish().stderr


def test_output_after_the_end_of_a_rank_is_shown(jobs: Jobs) -> None:
    script = "( for i in 1 2 3; do sleep 0.05; echo late $i; done ) & echo first"
    ended = jobs.run("-n", 2, *bash(script))
    assert ended.status == 0
    for rank in range(2):
        assert f"[{rank}] first\n" in ended.stdout
        assert f"[{rank}] late 3\n" in ended.stdout


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_signal_to_the_launcher_stops_the_job(jobs: Jobs, name: str) -> None:
    signum = signal.Signals[f"SIG{name}"]
    running = jobs.start("-n", 3, *bash(f"trap 'echo got {name}; exit 0' {name}; {_SPIN}"))
    running.read_until("ready", 3)
    running.signal(signum)
    ended = running.finish()
    assert ended.status == 128 + signum
    assert ended.stdout.count(f"got {name}") == 3
    assert f"stopped by SIG{name}" in ended.report


_SPIN = "echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_signal_at_any_moment_of_the_start_prints_no_traceback(jobs: Jobs, name: str) -> None:
    """From the first line of the entry point on, which is where it begins to handle them."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells which signals a process handles")
    from mcjax_launch.agent.system.linux import Linux

    signum = signal.Signals[f"SIG{name}"]
    for pause_ms in range(0, 300, 100):
        running = jobs.start("-n", 2, *bash(WAIT))
        pid = running.process.pid
        eventually(lambda: Linux().handles(pid, signal.SIGTERM))  # noqa: B023, it is called here
        time.sleep(pause_ms / 1000)  # any moment will do
        running.signal(signum)
        assert running.process.wait(20) == 128 + signum
        assert jobs.left() == []  # not even for a moment
        assert "Traceback" not in running.finish().stderr


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_second_signal_kills_at_once(jobs: Jobs, name: str) -> None:
    signum = signal.Signals[f"SIG{name}"]
    running = jobs.start("-n", 2, "--grace", 60, *bash(DEAF))
    running.read_until("ready", 2)
    running.signal(signum)
    assert running.process.stderr is not None
    note = running.process.stderr.readline()
    assert b"sent to the ranks" in note
    assert b"send it again to kill them now" in note or b"press again to kill them now" in note
    running.signal(signum)
    ended = running.finish()
    assert ended.status == 128 + signum
    assert ended.seconds < 30


def test_nohup_is_honoured(jobs: Jobs) -> None:
    running = jobs.start("-n", 1, *bash("echo ready; sleep 0.5"), launcher=["nohup", *LAUNCHER])
    running.read_until("ready")
    running.signal(signal.SIGHUP)
    assert running.finish().status == 0


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_user_signals_are_forwarded_and_nothing_else(jobs: Jobs, name: str) -> None:
    script = f"n=0; trap 'n=$((n+1)); echo got {name}' {name}; echo ready; until [ $n = 2 ]; do sleep 0.05; done"
    running = jobs.start("-n", 2, *bash(script))
    running.read_until("ready", 2)
    for count in (2, 4):
        running.signal(signal.Signals[f"SIG{name}"])
        running.read_until(f"got {name}", count)
    assert running.finish().status == 0


def test_killed_launcher_leaves_nothing(jobs: Jobs) -> None:
    running = jobs.start("-n", 3, "--grace", "0.3", *bash("setsid sleep 1000 & " + DEAF))
    running.read_until("ready", 3)
    running.signal(signal.SIGKILL)
    running.process.wait()
    eventually(lambda: not jobs.left(), 10)
    running.finish()


@pytest.mark.parametrize("victim", ["agent", "guardian"])
def test_killed_agent_ends_the_job(jobs: Jobs, victim: str) -> None:
    running = jobs.start("-n", 2, "--grace", "0.5", *bash("setsid sleep 1000 & " + DEAF))
    running.read_until("ready", 2)
    (running.agent if victim == "agent" else running.guardian).kill()
    ended = running.finish()
    assert ended.status == 255
    assert jobs.left() == []
    assert "host localhost: its agent " in ended.report


IMPORTS_JAX = "import jax.distributed, os, time; print('ready pid', os.getpid(), flush=True)"
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
LASTS = f"{IGNORES}; {IMPORTS_JAX}; time.sleep(1000)"


@pytest.mark.only_linux("parent-death signals")
@pytest.mark.parametrize(
    ("options", "program"),
    [
        (("--preload", "none"), bash(f"trap '' TERM; {WAIT}")),
        (("--preload", "none", "--no-hook"), (sys.executable, "-c", LASTS)),
        (("--preload", "json"), (sys.executable, "-c", LASTS)),
    ],
    ids=["spawned", "without hook", "forked"],
)  # fmt: skip
def test_ranks_die_with_launcher_agent_and_guardian(
    jobs: Jobs, tmp_path: Path, options: tuple[str, ...], program: tuple[str, ...]
) -> None:
    """Nobody is left who could end the ranks: the kernel kills them, also if they ignore SIGTERM."""
    make_stand_in(tmp_path)
    env = {"PYTHONPATH": str(tmp_path)}
    running = jobs.start("-n", 2, *options, *program, env=env)
    running.read_until("ready", 2)
    killed = (running.guardian.pid, running.process.pid, running.agent.pid)
    for pid in killed[:2]:  # they cannot act on the death of the others
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: _state(pid) == "T")  # noqa: B023, it is called here
    for pid in reversed(killed):
        os.kill(pid, signal.SIGKILL)
    assert running.finish().status == -signal.SIGKILL
    eventually(lambda: not any(map(alive, running.pids("pid"))))
    eventually(lambda: not jobs.left())
    (folder,) = Path(os.environ["TMPDIR"]).glob("mcjax-*")
    shutil.rmtree(folder)  # which nobody is left to remove either


def test_stopped_agent_is_continued(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, *bash(WAIT))
    running.read_until("ready", 2)
    agent = running.agent.pid
    os.kill(agent, signal.SIGSTOP)
    eventually(lambda: _state(agent) == "S")
    running.signal(signal.SIGTERM)
    assert running.finish().status == 143


def test_a_stopped_agent_and_guardian_do_not_hold_up_the_end(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, *bash("setsid sleep 1000 & " + WAIT))
    running.read_until("ready", 2)
    guardian, agent = running.guardian.pid, running.agent.pid
    os.kill(guardian, signal.SIGSTOP)  # first, or it would see that the agent is stopped
    eventually(lambda: _state(guardian) == "T")
    os.kill(agent, signal.SIGSTOP)
    eventually(lambda: _state(agent) == "T")
    running.signal(signal.SIGTERM)
    ended = running.finish()
    assert ended.status == 143
    assert ended.seconds < 15
    assert "both ranks: ended by SIGTERM" in ended.report


def _state(pid: int) -> str:
    """T if it is stopped, and S if it is not."""
    return "T" if psutil.Process(pid).status() == psutil.STATUS_STOPPED else "S"


@pytest.mark.parametrize(("way", "name"), [("blocked", "INT"), ("ignored", "TERM")])
def test_launcher_copes_with_blocked_or_ignored_signals(jobs: Jobs, way: str, name: str) -> None:
    how = {
        "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "ignored": "[signal.signal(s, signal.SIG_IGN) for s in (2, 15, signal.SIGCHLD)]",
    }[way]
    code = f"import os, signal, sys; {how}; os.execvp(sys.argv[1], sys.argv[1:])"
    launcher = [sys.executable, "-c", code, *LAUNCHER]
    ended = jobs.run("-n", 2, "true", launcher=launcher)
    assert ended.status == 0
    assert ended.seconds < 10  # as many more where nobody hears that the agent has ended
    running = jobs.start("-n", 2, *bash(WAIT), launcher=launcher)
    running.read_until("ready", 2)
    running.signal(signal.Signals[f"SIG{name}"])
    assert running.finish().status == 128 + signal.Signals[f"SIG{name}"]


# Ranks that end with 0 whenever they are asked to: nobody but the agent knows what happened.
OBEDIENT = "trap 'exit 0' TERM INT HUP; echo ready; sleep 1000 & wait"


@pytest.mark.parametrize("whom", ["agent", "guardian"])
def test_agent_stopped_at_any_moment_ends_the_job(jobs: Jobs, whom: str) -> None:
    """From its first moment, before its ranks are started, to a few moments after that."""
    for name, pause_ms in (("TERM", 0), ("INT", 16), ("HUP", 32), ("TERM", 64)):
        running = jobs.start("-n", 2, "--max-restarts", 2, *bash(OBEDIENT))
        eventually(lambda: _child(running.process.pid))  # noqa: B023, it is called here
        pid = guardian = _child(running.process.pid)
        if whom == "agent":
            eventually(lambda: _child(guardian))  # noqa: B023
            pid = _child(guardian)
        time.sleep(pause_ms / 1000)  # any moment will do
        os.kill(pid, signal.Signals[f"SIG{name}"])
        ended = running.finish()
        assert (pause_ms, ended.status) == (pause_ms, 255)
        assert f"host localhost: its agent was stopped by SIG{name}" in ended.report
        assert "restarting" not in ended.report


def _child(pid: int) -> int:
    """The first child of a process; 0 if it has none."""
    try:
        return next((child.pid for child in psutil.Process(pid).children()), 0)
    except psutil.Error:
        return 0


@pytest.mark.parametrize("errors_are_seen", [False, True])
def test_closed_output_of_a_silent_job_ends_it(jobs: Jobs, *, errors_are_seen: bool) -> None:
    """Also if errors go to a terminal, as in `mcjax-launch ... | head`."""
    screen, terminal = os.openpty()
    errors = terminal if errors_are_seen else subprocess.PIPE
    running = jobs.start("-n", 2, *bash(WAIT), stderr=errors)
    running.read_until("ready", 2)
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.process.stdout = None
    assert running.process.wait(20) == 141
    for fd in (screen, terminal):
        os.close(fd)


def test_closed_output_of_a_printing_job_ends_it(jobs: Jobs) -> None:
    script = 'set -o pipefail; "$@" 2>/dev/null | head -n 3'
    command = ["bash", "-c", script, "-", *LAUNCHER, "-n", "2", "yes"]
    ended = subprocess.run(command, env=jobs.environment(), capture_output=True, timeout=30)
    assert ended.returncode == 141
    assert ended.stdout.count(b"\n") == 3


def test_quit_shows_stacks_and_the_job_goes_on(jobs: Jobs, tmp_path: Path) -> None:
    end = tmp_path / "end"
    # Not in one long wait: Python 3.14 may enter it with a signal that it has not handled yet.
    waits = f"while not os.access({str(end)!r}, 0): print('ready', flush=True); time.sleep(0.05)"
    program = f"import os, time\ndef dig():\n {waits}\ndig()"
    running = jobs.start("-n", 2, "python3", "-c", program, stderr=subprocess.STDOUT)
    for rank in (0, 1):
        running.read_until(f"[{rank}] ready")
    running.signal(signal.SIGQUIT)
    shown = running.read_until("in dig")
    assert "stacks of 2 ranks, innermost call first:\n" in shown
    assert "ranks 0-1:\n" in shown and "  > <string>:3 in dig" in shown
    end.write_text("now")
    assert running.finish().status == 0


def test_child_that_saves_gets_the_whole_grace(jobs: Jobs) -> None:
    """A shell ends at once of a TERM; what it runs may still be writing its checkpoint."""
    save = "trap 'sleep 1.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    running = jobs.start("-n", 1, *bash(f'bash -c "{save}" & wait'))
    running.read_until("ready")
    running.signal(signal.SIGTERM)
    ended = running.finish()
    assert ended.status == 143
    assert "saved" in ended.stdout
    assert "lost" not in ended.report


def test_child_gets_one_signal(jobs: Jobs) -> None:
    count = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done"
    running = jobs.start("-n", 1, "--grace", "0.5", *bash(f'bash -c "{count}" & wait'))
    running.read_until("ready")
    running.signal(signal.SIGTERM)
    assert running.finish().stdout.count("told") == 1


def test_a_closed_terminal_is_a_hangup(jobs: Jobs) -> None:
    script = "trap 'sleep 0.5; touch $MARKS/saved; exit 0' HUP TERM; echo ready; while :; do sleep 0.05; done"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(LAUNCHER[0], [*LAUNCHER, "-n", "1", *bash(script)], jobs.environment())
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    assert os.path.exists(f"{os.environ['MARKS']}/saved")


def test_interrupted_pipeline_gives_ranks_their_grace(jobs: Jobs) -> None:
    """Ctrl-C also ends the reader: the ranks get the signal and its whole grace all the same."""
    script = (
        "trap 'sleep 1; touch $MARKS/saved; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    )
    running = jobs.start("-n", 1, *bash(script))
    running.read_until("ready")
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.signal(signal.SIGINT)
    assert running.process.wait(30) == 130
    assert os.path.exists(f"{os.environ['MARKS']}/saved")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_named(jobs: Jobs) -> None:
    with open("/dev/full", "wb") as full:
        running = jobs.start("-n", 1, "yes", stdout=full.fileno())
        ended = running.finish()
    assert ended.status == 141
    assert "stdout cannot be written: No space left on device" in ended.report


def test_many_python_helpers_do_not_exhaust_the_agent(jobs: Jobs) -> None:
    program = """
import subprocess, sys
many = [subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE) for _ in range(40)]
for helper in many: helper.communicate(b'x')
print('all', sum(helper.returncode for helper in many))
"""
    ended = jobs.run(
        *bash(f'ulimit -n 64 && exec {" ".join(LAUNCHER)} python3 -c "{program}"'),
        launcher=["env"],
    )
    assert ended.stdout == "[0] all 0\n", ended.stderr


def test_slow_reader_does_not_keep_a_failed_job_alive(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, *only(1, "echo ready pid $$; sleep 0.3; exit 5", "yes"))
    running.read_until("ready")
    (failing,) = running.pids()
    eventually(lambda: not alive(failing))
    eventually(lambda: len(jobs.left()) <= 3)  # launcher, guardian, agent: no rank
    assert running.finish().status == 5


def test_signal_reaches_ranks_without_a_reader(jobs: Jobs) -> None:
    running = jobs.start("-n", 2, "yes")
    eventually(lambda: len(jobs.left()) >= 5)
    time.sleep(0.2)  # let every buffer fill
    running.signal(signal.SIGTERM)
    running.process.wait(20)
    assert running.process.returncode == 143
    running.finish()


def test_the_leak_check_can_fail(jobs: Jobs, tmp_path: object) -> None:
    """A negative control: a process that does carry the token is found."""
    left = subprocess.Popen(["sleep", "1000"], env=jobs.environment())
    try:
        eventually(lambda: jobs.left() == [left.pid], 10)
        with pytest.raises(pytest.fail.Exception, match="sleep 1000"):
            check_nothing_left(jobs, tmp_path)  # type: ignore[arg-type]
    finally:
        left.kill()
        left.wait()
    assert os.path.isdir(str(tmp_path))

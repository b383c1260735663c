"""--preload with --on-rank-failure restart: rank restarts are forked too."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from jobs import Jobs, Running, alive, eventually

from mcjax_launch.kernel.wire.timers import SCALE

MODULE = "import os; by = os.getpid(); print('imported', flush=True)"
PROGRAM = """
import os, sys, time
life, rank = int(os.environ.get("MCJAX_RANK_RESTART", 0)), os.environ["JAX_PROCESS_ID"]
unseen = "mine" not in sys.modules
import mine
print("rank", rank, "life", life, unseen, mine.by != os.getpid(), flush=True)
print("pid", os.getpid(), flush=True)
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


def start(
    jobs: Jobs,
    folder: Path,
    text: str,
    option: str = "restart",
    *,
    preload: str = "mine",
    scale: str = "0.1",  # of the pauses before a rank's next life
) -> Running:
    (folder / "program.py").write_text(PROGRAM + text)
    words = ["-v", "--preload", preload, "-n", 3, "--on-rank-failure", option, "program.py"]
    return jobs.start(*words, cwd=folder, env={SCALE: scale}, stderr=subprocess.STDOUT)


def successors(running: Running) -> list[int]:
    """What is below the agent, but for the ranks."""
    agent = running.agent
    return [child.pid for child in agent.children() if child.pid not in running.pids()]


def test_restarted_ranks_are_forked(jobs: Jobs, folder: Path) -> None:
    """Of two ranks that fail at once, one of them twice, in variables of their own."""
    ended = start(
        jobs,
        folder,
        """
if rank != "0" and life < int(rank):
    open(f"{rank}.{life}", "w")
    wait_for(f"{3 - int(rank)}.0")
    sys.exit(3)
if rank == "0":
    wait_for("1.1"), wait_for("2.2")
open(f"{rank}.{life}", "w")
""",
    ).finish()
    assert ended.status == 0, ended.stdout
    said = sorted(line[4:] for line in ended.stdout.splitlines() if "] rank" in line)
    lives = [
        "rank 0 life 0",
        *(f"rank 1 life {n}" for n in (0, 1)),
        *(f"rank 2 life {n}" for n in (0, 1, 2)),
    ]
    assert said == [f"{life} True True" for life in lives]
    assert ended.stdout.count("imported") == 1
    assert "stray" not in ended.stdout
    again = ended.stdout.count("forked again")
    assert ended.stdout.count("ranks 1-2 forked again") + again == 3


def test_standby_import_server_shares_nothing_with_ranks(jobs: Jobs, folder: Path) -> None:
    """Nothing of a rank's: and a life that begins without it begins afresh."""
    text = "wait_for('go')\nif rank == '1' and life == 0:\n    sys.exit(3)"
    running = start(jobs, folder, text)
    running.read_until("] pid", 3)
    (successor,) = successors(running)
    files = Path(f"/proc/{successor}/fd")
    links = [os.readlink(file) for file in sorted(files.iterdir(), key=lambda file: int(file.name))]
    assert links[:3] == ["/dev/null"] * 3
    assert [link.partition(":")[0] for link in links[3:]] == ["socket"]
    assert os.getsid(successor) == os.getpgid(successor) == successor
    os.kill(successor, signal.SIGKILL)
    eventually(lambda: not alive(successor))
    (folder / "go").touch()
    ended = running.finish()
    assert ended.status == 0, ended.stdout
    assert "[1] rank 1 life 1 True False" in ended.stdout
    why = "the importing process was killed by SIGKILL; rank 1 is started afresh"
    assert f"mcjax-launch: --preload: {why}" in ended.stdout


def test_standby_import_server_ends_with_the_agent(jobs: Jobs, folder: Path) -> None:
    """And those that begin again on a host that was lost begin afresh."""
    running = start(jobs, folder, "time.sleep(1000)")
    running.read_until("] pid", 3)
    (successor,) = successors(running)
    running.agent.kill()
    eventually(lambda: not alive(successor))
    running.read_until("life 1 True False", 3)
    running.kill_now()


@pytest.mark.parametrize("preload", ["mine", "none"])
def test_restart_fails_cleanly_without_memory(jobs: Jobs, folder: Path, preload: str) -> None:
    text = "wait_for('go')\nif rank == '1': sys.exit(3)\ntime.sleep(1000)"
    running = start(jobs, folder, text, preload=preload, scale="3")
    running.read_until("] pid", 3)
    (folder / "go").touch()
    running.read_until("restarting rank 1")
    agent = running.agent
    taken = {int(name) for name in os.listdir(f"/proc/{agent.pid}/fd")}
    free = min(set(range(len(taken) + 1)) - taken)
    _, hard = agent.rlimit(psutil.RLIMIT_NOFILE)
    agent.rlimit(psutil.RLIMIT_NOFILE, (free + 1, hard))  # room for a look at /proc alone
    ended = running.finish()
    assert ended.status == 255, ended.stdout
    why = "rank 1 cannot be restarted: Too many open files; raise `ulimit -n`"
    assert ended.stdout.count(f"mcjax-launch: {why}\n") == 1
    assert "2 ended by SIGTERM" in ended.stdout
    assert "then never started" in ended.stdout


def test_no_standby_import_server_is_kept_without_rank_restarts(jobs: Jobs, folder: Path) -> None:
    running = start(jobs, folder, "time.sleep(1000)", "continue")
    running.read_until("] pid", 3)
    assert successors(running) == []
    running.kill_now()


@pytest.mark.parametrize("victim", ["successor", "launcher"])
@pytest.mark.parametrize("pause_ms", [0, 20, 40, 80])
def test_death_at_any_moment_does_not_hang_the_job(
    jobs: Jobs, folder: Path, victim: str, pause_ms: int
) -> None:
    """While a rank's next life is forked."""
    text = "if rank == '1' and life < 2:\n    sys.exit(3)\nwait_for('over')"
    running = start(jobs, folder, text)
    running.read_until("rank 1 life 0")
    running.read_until("restarting rank 1")
    found: list[int] = []  # one forks the next and ends: a look at all processes may miss both
    eventually(lambda: found.extend(successors(running)) or bool(found))
    successor = found[0]
    time.sleep(pause_ms / 1000)  # any moment will do
    pid = running.process.pid if victim == "launcher" else successor
    if alive(pid):
        os.kill(pid, signal.SIGKILL)
    (folder / "over").touch()
    ended = running.finish()
    if victim == "successor":
        assert ended.status in (0, 137), ended.stdout

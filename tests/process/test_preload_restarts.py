"""--preload with --max-restarts: what has been imported serves every attempt, and then ends."""

import contextlib
import os
import signal
from pathlib import Path

import psutil
import pytest
from jobs import Ended, Jobs, Running, alive, eventually
from remote import FAKE_SSH

# Says by which process it is imported.
MODULE = "import os; by = os.getpid(); print('imported', flush=True)"
# Fails in the first two attempts, when all ranks have come so far.
PROGRAM = """
import os, sys, time, mine
attempt = int(os.environ["MCJAX_RESTART"])
print("attempt", attempt, mine.by == os.getpid(), "by", mine.by, "pid", os.getpid(), flush=True)
there = os.path.join(os.environ["MEETING"], str(attempt))
os.makedirs(os.path.join(there, os.environ["JAX_PROCESS_ID"]))
while len(os.listdir(there)) < int(os.environ["JAX_NUM_PROCESSES"]):
    time.sleep(0.01)
sys.exit(attempt < 2)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("MEETING", str(tmp_path / "meeting"))
    return tmp_path


def words(*more: object) -> list[object]:
    return ["--preload", "mine", "--max-restarts", 2, *more, "program.py"]


def said(ended: Ended) -> list[str]:
    """What ranks said of each attempt, without which process it was."""
    assert ended.status == 0, ended.stderr
    lines = ended.stdout.splitlines()
    return sorted(line.partition(" by ")[0] for line in lines)


def test_modules_are_imported_once_for_all_attempts(jobs: Jobs, folder: Path) -> None:
    ended = jobs.run(*words("-v", "-n", 3, "--grace", "9s"), cwd=folder)
    forked = [f"[{rank}] attempt {attempt} False" for rank in range(3) for attempt in range(3)]
    assert said(ended) == sorted(["[0] imported", *forked])
    again = "ranks 0-2 forked from what an earlier attempt has imported"
    assert ended.report.count(again) == 2


def test_on_other_hosts(jobs: Jobs, folder: Path) -> None:
    """With the files of --sync, which each attempt gets anew, as its working directory."""
    hosts = ["--hosts", "a:2,b:2", "--via", FAKE_SSH, "--sync", "."]
    (folder / "program.py").write_text(
        PROGRAM.replace("mine.by == ", "'mine.py' not in os.listdir() or mine.by == ")
    )
    ended = jobs.run(*words(*hosts), cwd=folder)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("imported") == 2
    for rank in range(4):
        assert f"[{rank} {'ab'[rank // 2]}] attempt 2 False" in ended.stdout


def test_without_a_lost_host(jobs: Jobs, folder: Path) -> None:
    kills = "os.environ['JAX_PROCESS_ID'] == '1' and os.kill(os.getppid(), 9)"
    (folder / "program.py").write_text(
        PROGRAM.replace("sys.exit", f"attempt == 0 and ({kills} or time.sleep(99)); sys.exit")
    )
    hosts = ["--hosts", "a,b", "--via", FAKE_SSH, "--min-hosts", 1]
    ended = jobs.run(*words(*hosts), cwd=folder)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("imported") == 2  # once on each
    assert "[0] attempt 2 False" in ended.stdout


def test_a_variable_that_is_another_in_each_attempt(jobs: Jobs, folder: Path) -> None:
    """What has used it is imported again."""
    (folder / "mine.py").write_text(MODULE + "; os.environ['MCJAX_RESTART']")
    ended = jobs.run(*words("-n", 2), cwd=folder)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("imported") == 3
    assert " True" not in ended.stdout
    assert "afresh" not in ended.stderr


@pytest.mark.parametrize("where", [[], ["--hosts", "a", "--via", FAKE_SSH, "--sync", "."]])
def test_a_file_that_is_changed_between_attempts(
    jobs: Jobs, folder: Path, where: list[object]
) -> None:
    """It is imported again for the second attempt, and not for the third."""
    change = f"attempt == 0 and open({str(folder / 'mine.py')!r}, 'a').write('\\nword = 2')"
    (folder / "program.py").write_text(
        PROGRAM.replace("sys.exit", f"{change}; print(mine.word); sys.exit")
    )
    (folder / "mine.py").write_text(f"{MODULE}\nword = 1")
    ended = jobs.run(*words(*where, "-n", 1), cwd=folder)
    lines = [line.partition("] ")[2] for line in said(ended) if "attempt" not in line]
    assert sorted(lines) == ["1", "2", "2", "imported", "imported"]


def test_an_import_that_leaves_a_process(jobs: Jobs, folder: Path) -> None:
    """That ends with the attempt, as any other, and so does what it belongs to."""
    (folder / "mine.py").write_text(
        MODULE + "; import subprocess; print('pid', subprocess.Popen(['sleep', '99']).pid)"
    )
    ended = jobs.run(*words("-n", 2), cwd=folder)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("imported") == 3


# Ends by nothing but SIGKILL, and makes a file with its pid as its name.
STRAY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
time.sleep(99)
"""


def test_what_a_rank_leaves_is_gone_before_the_next_attempt(jobs: Jobs, folder: Path) -> None:
    (folder / "stray.py").write_text(STRAY)
    (folder / "left").mkdir()
    (folder / "program.py").write_text(
        "import os, subprocess, sys, time\n"
        "left = os.listdir('left')\n"
        "assert not any(os.path.exists(f'/proc/{pid}') for pid in left), left\n"
        "subprocess.run(['setsid', '-f', sys.executable, 'stray.py', 'left'])\n"
        "while len(os.listdir('left')) == len(left): time.sleep(0.01)\n" + PROGRAM
    )
    ended = jobs.run(*words("-n", 1, "--grace", "1s"), cwd=folder)
    assert ended.status == 0, ended.stderr
    assert len(list((folder / "left").iterdir())) == 3
    assert ended.stdout.count("imported") == 1


def test_an_agent_keeps_nothing_else(jobs: Jobs, folder: Path) -> None:
    (folder / "program.py").write_text(
        PROGRAM.replace(
            "sys.exit", "print('files', len(os.listdir(f'/proc/{os.getppid()}/fd')))\nsys.exit"
        )
    )
    ended = jobs.run(*words("-n", 1, "--cpu-transfers"), cwd=folder)
    assert ended.status == 0, ended.stderr
    counts = [line.split()[-1] for line in ended.stdout.splitlines() if "files" in line]
    assert int(counts[2]) <= int(counts[0]) + 2  # some are about to be closed


# --- between two attempts ---


class Pause:
    """A job whose first attempt has failed, and whose second begins in a moment.

    Attributes:
        pids: of its processes by what they are; the server has imported.

    """

    def __init__(self, jobs: Jobs, folder: Path, *options: object) -> None:
        program = (folder / "program.py").read_text()
        (folder / "program.py").write_text(program.replace("attempt < 2", "attempt < 1"))
        self.running: Running = jobs.start(*words("-n", 2, *options), cwd=folder)
        self.running.read_until("attempt 0", 2)
        launcher = self.running.process.pid
        server = int(self.running.pids("by")[0])
        eventually(lambda: [below.pid for below in _below(launcher)[2:]] == [server])
        guardian, agent, _ = _below(launcher)
        self.pids = {"launcher": launcher, "guardian": guardian.pid, "agent": agent.pid}
        self.pids["server"] = server

    def signal(self, signum: int, *whom: str) -> None:
        for name in whom:
            with contextlib.suppress(ProcessLookupError):  # it went with the one before
                os.kill(self.pids[name], signum)

    def finish(self) -> Ended:
        ended = self.running.finish()
        eventually(lambda: not any(alive(pid) for pid in self.pids.values()))
        return ended


def _below(launcher: int) -> list[psutil.Process]:
    return psutil.Process(launcher).children(recursive=True)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal(jobs: Jobs, folder: Path, name: str) -> None:
    pause = Pause(jobs, folder)
    pause.signal(signal.Signals[f"SIG{name}"], "launcher")
    ended = pause.finish()
    assert ended.status == 128 + signal.Signals[f"SIG{name}"], ended.stderr
    assert f"mcjax-launch: stopped by SIG{name} before another attempt\n" in ended.stderr
    assert "mcjax-launch: earlier attempts:\nmcjax-launch:   attempt 1: " in ended.stderr


DEATHS = [
    ["launcher"],
    ["launcher", "agent"],
    ["launcher", "guardian", "agent"],
    ["launcher", "server"],
]


@pytest.mark.parametrize("hung", [False, True])
@pytest.mark.parametrize("victims", DEATHS)
def test_the_launcher_is_killed(jobs: Jobs, folder: Path, victims: list[str], hung: bool) -> None:
    pause = Pause(jobs, folder)
    if hung:
        pause.signal(signal.SIGSTOP, "server")
    pause.signal(signal.SIGKILL, *victims)
    assert pause.finish().status == -signal.SIGKILL
    if "guardian" in victims:  # of which nobody is left to remove it
        for left in Path(os.environ["TMPDIR"]).glob("mcjax-*"):
            assert [path.name for path in left.iterdir()] == []
            left.rmdir()


@pytest.mark.parametrize("victims", [["server"], ["agent"], ["guardian"], ["agent", "guardian"]])
def test_a_death_is_made_good(jobs: Jobs, folder: Path, victims: list[str]) -> None:
    """The next attempt imports once more."""
    pause = Pause(jobs, folder)
    pause.signal(signal.SIGKILL, *victims)
    ended = pause.finish()
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("imported") == 2
    for left in Path(os.environ["TMPDIR"]).glob("mcjax-*"):
        assert victims == ["agent", "guardian"]
        left.rmdir()


def test_a_server_that_hangs(jobs: Jobs, folder: Path) -> None:
    pause = Pause(jobs, folder, "--timeout", "2s")
    pause.signal(signal.SIGSTOP, "server")
    ended = pause.finish()
    assert ended.status == 124
    assert ended.stdout.count("attempt 1") == 0


@pytest.mark.parametrize("victim", ["server", "agent"])
def test_a_death_in_an_attempt(jobs: Jobs, folder: Path, victim: str) -> None:
    (folder / "program.py").write_text(
        PROGRAM.replace("sys.exit(", "attempt or time.sleep(99); sys.exit(1 > ")
    )
    running = jobs.start(*words("-n", 2), cwd=folder)
    running.read_until("attempt 0", 2)
    agent = _below(running.process.pid)[1].pid
    server = running.pids("by")[0]
    os.kill({"server": server, "agent": agent}[victim], 9)
    if victim == "server":  # of which nobody takes notice now
        os.kill(running.pids()[0], 9)
    ended = running.finish()
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("imported") == 2
    assert not alive(server)

"""--watch: real edits, and what becomes of the job."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from jobs import Jobs, Running, alive, eventually
from remote import FAKE_SSH

pytestmark = pytest.mark.only_linux("inotify")

WAITS = "waiting for the next save"
AGAIN = "train.py has changed: starting again"
SLEEPS = "import time; time.sleep(1000)"


def program(text: str) -> str:
    """A program of which rank 0 says something."""
    return f'import os\nif os.environ["JAX_PROCESS_ID"] == "0":\n    print({text!r}, flush=True)\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(program("one"))
    return tmp_path


def start(jobs: Jobs, folder: Path, *options: object, ranks: int = 2, **how: object) -> Running:
    """Start a launcher that watches, with its own lines beside the ranks'."""
    return jobs.start(
        *("-n", ranks, "--watch", *options, "train.py"),
        cwd=folder,
        stderr=subprocess.STDOUT,
        **how,  # type: ignore[arg-type]
    )


def end(running: Running, signum: int = signal.SIGINT) -> str:
    """End a launcher by a signal; all that was printed."""
    running.signal(signum)
    ended = running.finish()
    assert ended.status == 128 + signum, ended.stdout
    return ended.stdout


def write(path: Path, text: str) -> None:
    path.write_text(text)


def rename(path: Path, text: str) -> None:
    """Write another file, and give it the name, as many editors do."""
    new = path.with_name("train.py___jb_tmp___")
    new.write_text(text)
    new.replace(path)


def as_vim(path: Path, text: str) -> None:
    """See whether a file can be made; rename the old one, write, remove the old one."""
    (path.parent / "4913").touch()
    (path.parent / "4913").unlink()
    swap, old = path.with_name(".train.py.swp"), path.with_name("train.py~")
    swap.write_text("swap")
    path.rename(old)
    path.write_text(text)
    old.unlink()
    swap.unlink()


def as_emacs(path: Path, text: str) -> None:
    """Lock it by a link that leads nowhere, keep a copy, truncate and write."""
    lock = path.with_name(".#train.py")
    lock.symlink_to("me@here.1")
    path.with_name("#train.py#").write_text(text)
    shutil.copy(path, path.with_name("train.py~"))
    path.write_text(text)
    lock.unlink()


SAVES = [write, rename, as_vim, as_emacs]


@pytest.mark.parametrize("save", SAVES, ids=[save.__name__ for save in SAVES])
def test_an_ended_job_starts_once_for_each_save(
    jobs: Jobs, folder: Path, save: Callable[[Path, str], None]
) -> None:
    running = start(jobs, folder)
    for number, text in enumerate(("two", "three"), 1):
        running.read_until(WAITS, number)
        save(folder / "train.py", program(text))
    running.read_until(WAITS, 3)
    printed = end(running)
    said = [line for line in printed.splitlines() if not line.startswith("mcjax-launch: the job")]
    first = ["[0] one", f"mcjax-launch: {WAITS}; Ctrl-C to end"]
    second = [f"mcjax-launch: {AGAIN}", "[0] two", f"mcjax-launch: {WAITS}; Ctrl-C to end"]
    third = [f"mcjax-launch: {AGAIN}", "[0] three", f"mcjax-launch: {WAITS}; Ctrl-C to end"]
    assert said == [*first, *second, *third, "mcjax-launch: stopped by SIGINT"]


def test_restart_on_a_save_ends_all_old_processes(jobs: Jobs, folder: Path) -> None:
    """Also what ignores SIGTERM; and the second run has new processes."""
    text = f"""
import os, signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen(["setsid", "sleep", "1000"])
print("pid", os.getpid(), "below", other.pid, flush=True)
{SLEEPS}
"""
    write(folder / "train.py", text)
    running = start(jobs, folder)
    running.read_until("pid", 2)
    eventually(lambda: running.out.endswith(b"\n"))
    first = [*running.pids(), *running.pids("below")]
    write(folder / "train.py", program("two"))
    running.read_until(WAITS)
    assert not [pid for pid in first if alive(pid)]
    printed = end(running)
    assert printed.count(AGAIN) == 1
    assert "[0] two" in printed


def test_a_failure_is_summed_up_and_waits_for_the_next_save(jobs: Jobs, folder: Path) -> None:
    write(folder / "train.py", "raise ValueError('bad batch')")
    running = start(jobs, folder)
    running.read_until(WAITS)
    write(folder / "train.py", program("two"))
    running.read_until(WAITS, 2)
    printed = end(running)
    assert "2 ranks failed: ValueError: bad batch" in printed
    assert printed.index("ValueError") < printed.index(WAITS) < printed.index("[0] two")


def test_syntax_error_does_not_end_the_watch(jobs: Jobs, folder: Path) -> None:
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS}")
    running = start(jobs, folder)
    running.read_until("ready", 2)
    write(folder / "train.py", "a = 1\nif (\n")
    running.read_until("the job continues")
    assert (
        "train.py:2: SyntaxError: '(' was never closed; the job continues" in running.out.decode()
    )
    agent = running.agent
    assert len([child for child in agent.children() if alive(child.pid)]) == 2
    write(folder / "train.py", program("two"))
    running.read_until(WAITS)
    write(folder / "train.py", "b = ]\n")
    running.read_until("train.py:1: SyntaxError: ")
    running.read_until(WAITS, 2)
    write(folder / "train.py", program("three"))
    running.read_until(WAITS, 3)
    printed = end(running)
    assert printed.count(AGAIN) == 2
    assert "[0] three" in printed


def test_syntax_error_delays_the_restart(jobs: Jobs, folder: Path) -> None:
    """It would end the job, which may import it."""
    running = start(jobs, folder)
    running.read_until(WAITS)
    write(folder / "other.py", "(")
    running.read_until("other.py:1: ")
    write(folder / "train.py", program("two"))
    running.read_until("other.py:1: ", 2)
    (folder / "other.py").unlink()
    write(folder / "train.py", program("three"))
    running.read_until(WAITS, 4)
    printed = end(running)
    assert "[0] two" not in printed
    assert "[0] three" in printed


def test_saves_in_quick_succession_count_once(jobs: Jobs, folder: Path) -> None:
    running = start(jobs, folder)
    running.read_until(WAITS)
    for number in range(20):
        write(folder / "train.py", program(f"number {number}"))
    write(folder / "other.py", "")
    running.read_until(WAITS, 2)
    printed = end(running)
    assert printed.count("starting again") == 1
    assert "train.py and other.py have changed: starting again" in printed
    assert "[0] number 19" in printed


def test_modules_and_new_folders_are_noticed(jobs: Jobs, folder: Path) -> None:
    """Each is imported afresh, also one that is saved twice within a second, as long as before."""
    (folder / "helper.py").write_text("TEXT = 'a'")
    text = "import os, sys, helper\nsys.dont_write_bytecode = False\nprint(helper.TEXT, flush=True)"
    write(folder / "train.py", text)
    environ = {"PYTHONDONTWRITEBYTECODE": ""}
    running = start(jobs, folder, ranks=1, env=environ)
    for number, letter in enumerate("bcdefg", 1):
        running.read_until(WAITS, number)
        write(folder / "helper.py", f"TEXT = '{letter}'")
    running.read_until(WAITS, 7)
    assert [line[4:] for line in running.out.decode().splitlines() if line[0] == "["] == [
        *"abcdefg"
    ]
    (folder / "package" / "inner").mkdir(parents=True)
    (folder / "package" / "inner" / "new.py").write_text("")
    running.read_until("package/inner/new.py has changed")
    running.read_until(WAITS, 8)
    (folder / "package").rename(folder / "renamed")
    running.read_until("renamed/inner/new.py has changed")
    running.read_until(WAITS, 9)
    (folder / "renamed" / "inner" / "new.py").write_text("")
    running.read_until("renamed/inner/new.py has changed", 2)
    running.read_until(WAITS, 10)
    end(running)


def test_files_that_are_no_source_are_ignored(jobs: Jobs, folder: Path) -> None:
    for name in (".hidden", "__pycache__", "node_modules", "run-1", "venv", "package"):
        (folder / name).mkdir()
    (folder / "venv" / "pyvenv.cfg").touch()
    running = start(jobs, folder)
    running.read_until(WAITS)
    for name in (".hidden", "__pycache__", "node_modules", "run-1", "venv", "."):
        (folder / name / "data.txt").write_text("")
    for name in (".hidden", "__pycache__", "node_modules", "run-1", "venv"):
        (folder / name / "source.py").write_text("")
    (folder / "package" / "source.py").write_text("")
    running.read_until(WAITS, 2)
    printed = end(running)
    assert "mcjax-launch: package/source.py has changed: starting again" in printed
    assert printed.count("starting again") == 1


def test_watched_folder_excludes_logs_of_the_job(jobs: Jobs, folder: Path) -> None:
    """A named folder counts as a whole, but for what the job writes there."""
    for name in ("data", "data/more", "data/logs"):
        (folder / name).mkdir()
    (folder / "settings").touch()
    options = ["data", "--watch=settings", "--log-dir", "data/logs", "--report", "data/run.json"]
    running = start(jobs, folder, *options)
    changed = ["settings", "data/x.json", "data/more/y"]
    for number, name in enumerate(changed, 1):
        running.read_until(WAITS, number)
        (folder / name).write_text("{}")
    running.read_until(WAITS, 4)
    printed = end(running)
    said = [line for line in printed.splitlines() if "has changed" in line]
    assert said == [f"mcjax-launch: {name} has changed: starting again" for name in changed]
    assert (folder / "data" / "logs" / "0.out").read_text() == "one\n"


@pytest.mark.parametrize(
    ("command", "file", "text"),
    [
        (["-m", "package.train"], "package/model.py", ""),
        (["-m", "package.train"], "package/train.py", "print('two', flush=True)"),
        (["bash", "run.sh"], "run.sh", "echo two"),
        (["./run.sh"], "run.sh", "#!/bin/sh\necho two"),
        (["python3", "-u", "script"], "script", "print('two', flush=True)"),
    ],
)
def test_each_kind_of_program_is_watched(
    jobs: Jobs, folder: Path, command: list[str], file: str, text: str
) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    for name in ("package/train.py", "script"):
        (folder / name).write_text("print('one', flush=True)")
    (folder / "run.sh").write_text("#!/bin/sh\necho one")
    (folder / "run.sh").chmod(0o755)
    words = ["-n", 1, "--watch", *command]
    running = jobs.start(*words, cwd=folder, stderr=subprocess.STDOUT)
    running.read_until(WAITS)
    (folder / file).write_text(text)
    running.read_until(WAITS, 2)
    printed = end(running)
    assert f"{file} has changed: starting again" in printed
    assert ("[0] two" in printed) == bool(text)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("runs", [False, True], ids=["waiting", "running"])
def test_signal_ends_job_and_watch(jobs: Jobs, folder: Path, name: str, *, runs: bool) -> None:
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS if runs else ''}")
    running = start(jobs, folder)
    running.read_until("ready", 2)
    if not runs:
        running.read_until(WAITS)
    printed = end(running, signal.Signals[name])
    assert f"stopped by {name}" in printed
    assert jobs.left() == []


def test_a_second_interrupt_kills_at_once(jobs: Jobs, folder: Path) -> None:
    text = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)"
    write(folder / "train.py", f"{text}\n{SLEEPS}")
    running = start(jobs, folder, "--grace", "1h")
    running.read_until("ready", 2)
    running.kill_now()
    assert running.finish().status == 130


def test_interrupt_during_a_failure_keeps_its_status(jobs: Jobs, folder: Path) -> None:
    """The failure is the exit status, and nothing is waited for."""
    text = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    text += "print('ready', flush=True)\nif os.environ['JAX_PROCESS_ID'] == '1':\n    os._exit(3)"
    write(folder / "train.py", f"{text}\n{SLEEPS}")
    running = jobs.start("-n", 2, "-v", "--watch", "--grace", "1h", "train.py", cwd=folder)
    running.read_until("ready", 2)
    assert running.process.stderr is not None
    while b"rank 1: exited with status 3" not in running.err:
        running.err += os.read(running.process.stderr.fileno(), 4096)
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 3
    assert WAITS not in ended.stderr


def test_interrupt_during_a_restart_ends_the_watch(jobs: Jobs, folder: Path) -> None:
    """It is not started again."""
    text = "import signal\nfor name in ('SIGINT', 'SIGTERM'):\n"
    text += "    signal.signal(getattr(signal, name), signal.SIG_IGN)\nprint('ready', flush=True)"
    write(folder / "train.py", f"{text}\n{SLEEPS}")
    running = jobs.start("-n", 2, "--watch", "--grace", "1h", "train.py", cwd=folder)
    running.read_until("ready", 2)
    write(folder / "train.py", program("two"))
    assert running.process.stderr is not None
    while AGAIN.encode() not in running.err:
        running.err += os.read(running.process.stderr.fileno(), 4096)
    while running.process.poll() is None:  # the first asks the ranks, another kills them
        running.signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(0.5)
    ended = running.finish()
    assert ended.status == 130
    assert "two" not in ended.stdout
    assert "stopped by SIGINT" in ended.stderr


@pytest.mark.parametrize("runs", [False, True], ids=["waiting", "running"])
def test_killed_launcher_leaves_no_process(jobs: Jobs, folder: Path, *, runs: bool) -> None:
    """In the second run, whose agent is that of the first."""
    running = start(jobs, folder, "--preload", "json")
    running.read_until(WAITS)
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS if runs else ''}")
    running.read_until("ready", 2)
    if not runs:
        running.read_until(WAITS, 2)
    running.process.kill()
    running.process.wait()
    eventually(lambda: jobs.left() == [])


def test_a_killed_agent_is_replaced(jobs: Jobs, folder: Path) -> None:
    running = start(jobs, folder)
    running.read_until(WAITS)
    agent = running.agent
    agent.kill()
    eventually(lambda: not alive(agent.pid))
    write(folder / "train.py", program("two"))
    running.read_until(WAITS, 2)
    assert "[0] two" in end(running)


def test_closed_output_ends_the_wait(jobs: Jobs, folder: Path) -> None:
    running = jobs.start("-n", 1, "--watch", "train.py", cwd=folder)
    running.read_until("one")
    assert running.process.stdout is not None
    assert running.process.stderr is not None
    while WAITS.encode() not in running.err:
        running.err += os.read(running.process.stderr.fileno(), 4096)
    running.process.stdout.close()
    assert running.process.wait(20) == 141


def test_many_runs_leave_no_descriptor_open(jobs: Jobs, folder: Path) -> None:
    """Neither in the launcher nor in the agent."""
    running = start(jobs, folder, "--preload", "json")
    running.read_until(WAITS)
    launcher, agent = psutil.Process(running.process.pid), running.agent
    counts = []
    for number in range(2, 6):
        write(folder / "train.py", program(str(number)))
        running.read_until(WAITS, number)
        counts.append((launcher.num_fds(), agent.num_fds()))
    assert len(set(counts)) == 1, counts
    assert running.agent.pid == agent.pid
    end(running)


def test_each_run_has_its_own_attempts_and_record(jobs: Jobs, folder: Path) -> None:
    """--max-restarts counts anew, --report is of the last run, logs are written anew."""
    text = program("one") + "print(os.environ['MCJAX_RESTART'], flush=True)\nos._exit(3)"
    write(folder / "train.py", text)
    options = ["--max-restarts", 1, "--report", "run.json", "--log-dir", "logs"]
    running = start(jobs, folder, *options, env={"MCJAX_TEST_TIME_SCALE": "0.1"})
    running.read_until(WAITS)
    write(folder / "train.py", text.replace("one", "two"))
    running.read_until(WAITS, 2)
    printed = end(running)
    assert printed.count("restarting in") == 2
    assert (folder / "logs" / "1.out").read_text() == "0\n1\n"
    assert (folder / "logs" / "0.out").read_text() == "two\n0\ntwo\n1\n"


def test_save_during_the_restart_pause_starts_at_once(jobs: Jobs, folder: Path) -> None:
    write(folder / "train.py", "import os; os._exit(3)")
    running = start(jobs, folder, "--max-restarts", 5)
    running.read_until("restarting in")
    write(folder / "train.py", program("two"))
    running.read_until(WAITS)
    printed = end(running)
    assert printed.count("restarting in") == 1
    assert "[0] two" in printed


def test_other_hosts_get_the_saved_files(jobs: Jobs, folder: Path) -> None:
    """Their agents stay, the files are staged again, and the last run's are gone."""
    (folder / "helper.py").write_text("TEXT = 'a'")
    text = "import os, helper\nprint(helper.TEXT, 'in', os.getcwd(), os.getppid(), flush=True)"
    write(folder / "train.py", text)
    words = ["--sync", "train.py", "--sync", "helper.py", "--hosts", "a,b", "--via", FAKE_SSH]
    running = start(jobs, folder, *words, "--preload", "json")
    running.read_until(WAITS)
    write(folder / "helper.py", "TEXT = 'b'")
    running.read_until(WAITS, 2)
    printed = end(running)
    lines = [line.split() for line in printed.splitlines() if " in /" in line]
    seen = sorted((line[0] + line[1], line[2]) for line in lines)
    assert seen == [("[0a]", "a"), ("[0a]", "b"), ("[1b]", "a"), ("[1b]", "b")]
    assert len({line[-1] for line in lines}) == 2
    assert not [line[-2] for line in lines if os.path.exists(line[-2])]
    assert "helper.py has changed: starting again" in printed


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--dry-run", "train.py"], "--watch cannot be combined with --dry-run"),
        (["--emit", "slurm", "train.py"], "--watch cannot be combined with --emit"),
        (["--stdin", "all", "train.py"], "--watch cannot be combined with --stdin: it can be read"),
        (["--check"], "--check cannot be combined with --watch"),
        (["true"], "--watch: true names no file here; name one: --watch=PATH"),
        (["--watch=no/such", "train.py"], "--watch no/such: no such file or directory"),
    ],
)
def test_unsuitable_options_of_watch_are_refused(
    jobs: Jobs, folder: Path, options: list[str], why: str
) -> None:
    ended = jobs.run("--watch", *options, cwd=folder)
    assert ended.status == 2
    assert why in ended.report


def test_missing_program_is_refused(jobs: Jobs, folder: Path) -> None:
    """The first time; what vanishes later may come again."""
    ended = jobs.run("--watch", "no.py", cwd=folder)
    assert ended.status == 2
    running = start(jobs, folder)
    running.read_until(WAITS)
    (folder / "other.py").touch()
    (folder / "train.py").unlink()
    running.read_until(WAITS, 2)
    write(folder / "train.py", program("two"))
    running.read_until(WAITS, 3)
    printed = end(running)
    assert "train.py: no such file" in printed
    assert "[0] two" in printed

"""--watch: real edits, and what becomes of the job."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from jobs import Jobs, Running, alive, eventually
from remote import FAKE_SSH
from terminal import Terminal

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


def find_launchers(running: Running) -> list[psutil.Process]:
    """Find the launchers of the present run and of the next one, the older first."""
    found: list[psutil.Process] = psutil.Process(running.process.pid).children()
    return found


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


def test_syntax_error_does_not_end_the_watch(jobs: Jobs, folder: Path) -> None:
    write(folder / "train.py", f"import os\nprint('pid', os.getpid(), flush=True)\n{SLEEPS}")
    running = start(jobs, folder)
    running.read_until("pid", 2)
    eventually(lambda: running.out.endswith(b"\n"))
    write(folder / "train.py", "a = 1\nif (\n")
    running.read_until("not started again")
    assert (
        "train.py:2: SyntaxError: '(' was never closed; not started again before it is corrected"
        in running.out.decode()
    )
    assert len([pid for pid in running.pids() if alive(pid)]) == 2
    write(folder / "train.py", program("two"))
    running.read_until(WAITS)
    write(folder / "train.py", "b = ]\n")
    running.read_until("train.py:1: SyntaxError: ")
    write(folder / "train.py", program("three"))
    running.read_until(WAITS, 2)
    printed = end(running)
    assert printed.count(AGAIN) == 2
    assert "[0] three" in printed


def test_modules_and_new_folders_are_noticed(jobs: Jobs, folder: Path) -> None:
    """Each is imported afresh, also one that is saved twice within a second, as long as before."""
    (folder / "helper.py").write_text("TEXT = 'a'")
    text = "import os, sys, helper\nsys.dont_write_bytecode = False\nprint(helper.TEXT, flush=True)"
    write(folder / "train.py", text)
    environ = {"PYTHONDONTWRITEBYTECODE": ""}
    running = start(jobs, folder, ranks=1, env=environ)
    for number, letter in enumerate("bcd", 1):
        running.read_until(WAITS, number)
        write(folder / "helper.py", f"TEXT = '{letter}'")
    running.read_until(WAITS, 4)
    said = [line[4:] for line in running.out.decode().splitlines() if line[0] == "["]
    assert said == [*"abcd"]
    (folder / "package" / "inner").mkdir(parents=True)
    (folder / "package" / "inner" / "new.py").write_text("")
    running.read_until("package/inner/new.py has changed")
    running.read_until(WAITS, 5)
    (folder / "package").rename(folder / "renamed")
    running.read_until("renamed/inner/new.py has changed")
    running.read_until(WAITS, 6)
    end(running)


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
        (["-m", "package.train"], "package/train.py", "print('two', flush=True)"),
        (["-m", "package.inner.train"], "package/other.py", "print('two', flush=True)"),
        (["bash", "run.sh"], "run.sh", "echo two"),
        (["python3", "-u", "script"], "script", "print('two', flush=True)"),
    ],
)
def test_each_kind_of_program_is_watched(
    jobs: Jobs, folder: Path, command: list[str], file: str, text: str
) -> None:
    for name in ("package", "package/inner"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
    (folder / "package" / "inner" / "train.py").write_text("import package.other")
    for name in ("package/train.py", "package/other.py", "script"):
        (folder / name).write_text("print('one', flush=True)")
    (folder / "run.sh").write_text("echo one")
    words = ["-n", 1, "--watch", *command]
    running = jobs.start(*words, cwd=folder, stderr=subprocess.STDOUT)
    running.read_until(WAITS)
    (folder / file).write_text(text)
    running.read_until(WAITS, 2)
    printed = end(running)
    assert f"{file} has changed: starting again" in printed
    assert "[0] two" in printed


@pytest.mark.parametrize(("name", "runs"), [("SIGINT", True), ("SIGTERM", False), ("SIGHUP", True)])
def test_signal_ends_job_and_watch(jobs: Jobs, folder: Path, name: str, *, runs: bool) -> None:
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS if runs else ''}")
    running = start(jobs, folder)
    running.read_until("ready", 2)
    if not runs:
        running.read_until(WAITS)
    printed = end(running, signal.Signals[name])
    assert f"stopped by {name}" in printed
    if name == "SIGINT":  # without a terminal
        assert f"kill -QUIT {running.process.pid} shows where they are" in printed
    assert jobs.left() == []


def test_killed_launcher_leaves_no_process(jobs: Jobs, folder: Path) -> None:
    """Neither of the run nor of the next one, which has been begun."""
    running = start(jobs, folder, "--preload", "json")
    running.read_until(WAITS)
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS}")
    running.read_until("ready", 2)
    eventually(lambda: len(find_launchers(running)) == 2)
    running.process.kill()
    running.process.wait()
    eventually(lambda: jobs.left() == [])


@pytest.mark.parametrize("which", ["agent", "launcher"])
def test_next_run_that_has_died_is_begun_again(jobs: Jobs, folder: Path, which: str) -> None:
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS}")
    running = start(jobs, folder)
    running.read_until("ready", 2)
    eventually(lambda: len(find_launchers(running)) == 2 and find_launchers(running)[1].children())
    waiting = find_launchers(running)[1]
    victim = waiting if which == "launcher" else waiting.children()[0]
    victim.kill()
    eventually(lambda: not alive(waiting.pid))
    write(folder / "train.py", program("two"))
    running.read_until(WAITS)
    assert "[0] two" in end(running)


def test_next_run_waits_and_is_released_by_a_save(jobs: Jobs, folder: Path) -> None:
    """Its processes are there before the save, and print nothing until then."""
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS}")
    running = start(jobs, folder, "-v")
    running.read_until("ready", 2)
    eventually(lambda: len(find_launchers(running)) == 2)
    waiting = find_launchers(running)[1]
    write(folder / "train.py", program("two") + SLEEPS)
    running.read_until("[0] two")
    assert find_launchers(running)[0] == waiting
    printed = end(running)
    assert printed.index(AGAIN) < printed.rindex("mcjax-launch: job ") < printed.index("[0] two")
    assert jobs.left() == []


def test_next_run_is_dropped_if_it_would_be_prepared_otherwise(jobs: Jobs, folder: Path) -> None:
    settings = folder / "pyproject.toml"
    settings.write_text("[tool.mcjax-launch]\nenv = ['A=1']\n")
    sleeping = f"import os\nprint('A is', os.environ['A'], flush=True)\n{SLEEPS}"
    write(folder / "train.py", sleeping)
    running = start(jobs, folder, "--watch=pyproject.toml")
    running.read_until("A is 1", 2)
    eventually(lambda: len(find_launchers(running)) == 2)
    settings.write_text("[tool.mcjax-launch]\nenv = ['A=2']\n")
    running.read_until("A is 2", 2)
    end(running)


def test_many_runs_leave_no_descriptor_open(jobs: Jobs, folder: Path) -> None:
    running = start(jobs, folder)
    running.read_until(WAITS)
    launcher = psutil.Process(running.process.pid)
    eventually(lambda: len(find_launchers(running)) == 1)  # the next run's
    known = launcher.num_fds()
    for number in range(2, 6):
        write(folder / "train.py", program(str(number)))
        running.read_until(WAITS, number)
    # Some are open for a moment: while a run ends, or a file is read.
    eventually(lambda: launcher.num_fds() <= known)
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
    """The files are staged again, and the last run's are gone."""
    (folder / "helper.py").write_text("TEXT = 'a'")
    text = "import os, helper\nprint(helper.TEXT, 'in', os.getcwd(), flush=True)"
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
    assert not [line[-1] for line in lines if os.path.exists(line[-1])]
    assert "helper.py has changed: starting again" in printed


def test_slow_setup_hands_large_variables_to_the_next_run(jobs: Jobs, folder: Path) -> None:
    """It runs once; what it has set is longer than a packet between the processes of --watch."""
    text = 'import os; print("set", *(len(os.environ[f"BIG{n}"]) for n in range(4)), flush=True)'
    (folder / "train.py").write_text(text)
    large = "export BIG$n=$(printf %050000d 0)"
    setup = f"echo once >> ran; sleep 1.1; for n in 0 1 2 3; do {large}; done"
    running = start(jobs, folder, "--setup", setup)
    for run in (1, 2):
        running.read_until(WAITS, run)
        write(folder / "train.py", f"{text}  # {run}")
    running.read_until(WAITS, 3)
    assert end(running).count("set 50000 50000 50000 50000\n") == 6
    assert (folder / "ran").read_text() == "once\n"


def test_program_that_vanishes_may_come_again(jobs: Jobs, folder: Path) -> None:
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


def test_enter_runs_again_at_a_terminal(jobs: Jobs, folder: Path) -> None:
    terminal = Terminal(jobs, "-n", 2, "--watch", folder / "train.py")
    try:
        for _ in range(3):
            terminal.until("[0] one")
            terminal.until(f"{WAITS}; Enter to run again, Ctrl-C to end")
            terminal.type("\r")
        terminal.until("[0] one")
        terminal.until(WAITS)
        terminal.type("\x03")
        assert terminal.finish() == 130
    finally:
        terminal.close()


def test_ctrl_z_suspends_the_run_and_the_watch(jobs: Jobs, folder: Path) -> None:
    (folder / "train.py").write_text(f"print('ready', flush=True)\n{SLEEPS}")
    terminal = Terminal(jobs, "-n", 1, "--watch", folder / "train.py")
    try:
        terminal.until("ready")
        watcher = psutil.Process(terminal.pid)
        both = [watcher, watcher.children()[0]]
        terminal.type("\x1a")
        eventually(lambda: {each.status() for each in both} == {psutil.STATUS_STOPPED})
        watcher.send_signal(signal.SIGCONT)
        (folder / "train.py").write_text(program("two"))
        terminal.until("two")
        terminal.until(WAITS)
        terminal.type("\x03")
        assert terminal.finish() == 130
    finally:
        terminal.close()


def test_enter_during_a_run_is_not_kept(jobs: Jobs, folder: Path) -> None:
    runs = "open('runs', 'a').write('.')\n"
    (folder / "train.py").write_text(
        f"import os, time\n{runs}while not os.path.exists('go'): time.sleep(0.02)"
    )
    terminal = Terminal(jobs, "-n", 1, "-C", folder, "--watch", "train.py")
    try:
        terminal.type("\r\r")
        terminal.until("\r\n\r\n")
        (folder / "go").touch()
        terminal.until(WAITS)
        (folder / "train.py").write_text(runs)
        terminal.until(WAITS)
        terminal.type("\x03")
        assert terminal.finish() == 130
        assert (folder / "runs").read_text() == ".."
    finally:
        terminal.close()


def test_signal_while_a_save_ends_the_run_is_told(jobs: Jobs, folder: Path) -> None:
    ignores = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    write(folder / "train.py", f"{ignores}\nprint('ready', flush=True)\n{SLEEPS}")
    running = start(jobs, folder)
    running.read_until("ready", 2)
    write(folder / "train.py", program("two"))
    running.read_until(AGAIN)
    printed = end(running, signal.SIGHUP)
    assert printed.count("stopped by SIGHUP") == 1
    assert "[0] two" not in printed
    assert jobs.left() == []


def test_killed_run_does_not_end_the_watch(jobs: Jobs, folder: Path) -> None:
    """Even if it has orders that it has not read, which reset the link to it."""
    write(folder / "train.py", f"print('ready', flush=True)\n{SLEEPS}")
    running = start(jobs, folder)
    running.read_until("ready", 2)
    run = find_launchers(running)[0]
    run.suspend()
    running.signal(signal.SIGUSR1)
    time.sleep(0.2)  # until it has been passed on
    run.kill()
    running.read_until("the run was killed by SIGKILL")
    running.read_until(WAITS)
    write(folder / "train.py", program("two"))
    running.read_until("[0] two")
    running.read_until(WAITS, 2)
    end(running)

"""--preload without JAX: what is imported once, which ranks are forked, and how all of that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from jobs import Ended, Jobs, alive, eventually, shell_script
from remote import FAKE_SSH

AFRESH = "the ranks are started afresh"
# Says by which process it is imported, and in which it is used: there it is out of sight at first.
MODULE = "import os; by = os.getpid(); print('imported', flush=True)"
PROGRAM = (
    "import os, sys; unseen = 'mine' not in sys.modules; import mine;"
    "print('rank', os.environ['JAX_PROCESS_ID'], unseen, mine.by == os.getpid(), *sys.argv[1:])"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def preload(jobs: Jobs, folder: Path, *words: object, module: str = "mine", **how: object) -> Ended:
    return jobs.run("--preload", module, *words, cwd=folder, **how)  # type: ignore[arg-type]


def lines(ended: Ended) -> list[str]:
    assert ended.status == 0, ended.stderr
    return sorted(ended.stdout.splitlines())


def ranks(forked: bool, *numbers: int) -> list[str]:
    return [f"[{rank}] rank {rank} True {not forked}" for rank in numbers]


# --- what is forked ---


def test_modules_are_imported_once(jobs: Jobs, folder: Path) -> None:
    ended = preload(jobs, folder, "-n", 4, "program.py")
    assert lines(ended) == ["[0] imported", *ranks(True, 0, 1, 2, 3)]
    assert ended.err == b""


WAYS = {
    "a file": ["program.py"],
    "a file elsewhere": ["../{folder}/program.py"],
    "a module": ["-m", "program"],
    "with options": [sys.executable, "-X", "dev", "-O", "program.py"],
    "a string": [sys.executable, "-c", PROGRAM],
    "below a profiler": [sys.executable, "-m", "cProfile", "-o", "profile", "program.py"],
    "below runpy": ["-m", "runpy", "program"],
    "a folder": [sys.executable, "."],
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_run_a_program_can_fork(jobs: Jobs, folder: Path, way: str) -> None:
    (folder / "__main__.py").write_text(PROGRAM)
    words = [word.format(folder=folder.name) for word in WAYS[way]]
    ended = preload(jobs, folder, "-n", 2, *words)
    assert lines(ended) == ["[0] imported", *ranks(True, 0, 1)]
    assert ended.err == b""


CHILDREN = """
import multiprocessing, os, sys, mine
from concurrent.futures import ProcessPoolExecutor

def seen(queue):
    queue.put((os.environ["JAX_PROCESS_ID"], multiprocessing.parent_process().pid))

def add(number):
    return number + 1

if __name__ == "__main__":
    for way in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(way)
        queue = context.Queue()
        process = context.Process(target=seen, args=(queue,))
        process.start()
        ours = queue.get() == (os.environ["JAX_PROCESS_ID"], os.getpid())
        process.join()
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            print(way, ours, process.exitcode, list(pool.map(add, [1, 2])))
    print("one", sys.modules["__mp_main__"] is sys.modules["__main__"])
"""


def test_multiprocessing_works_in_forked_ranks(jobs: Jobs, folder: Path) -> None:
    (folder / "mine.py").write_text("import multiprocessing")
    (folder / "program.py").write_text(CHILDREN)
    fresh = lines(jobs.run("-n", 2, "program.py", cwd=folder))
    assert len(fresh) == 8 and fresh[0] == "[0] fork True 0 [2, 3]"
    assert lines(preload(jobs, folder, "-n", 2, "program.py")) == fresh


def test_coverage_measures_forked_ranks(jobs: Jobs, folder: Path) -> None:
    pytest.importorskip("coverage")
    words = ["-m", "coverage", "run", "--parallel-mode", "--include=program.py", "program.py"]
    ended = preload(jobs, folder, "-n", 2, *words)
    assert lines(ended) == ["[0] imported", *ranks(True, 0, 1)]
    assert len(list(folder.glob(".coverage.*"))) == 2


def test_each_rank_has_its_own_command(jobs: Jobs, folder: Path) -> None:
    """/proc shows it whole, also where it is longer than the first rank's."""
    words = [PROGRAM + "; print(open('/proc/self/cmdline').read().split(chr(0))[3:])"]
    words += ["{process_id} of {num_processes}", "x"]
    ended = preload(jobs, folder, "-n", 11, sys.executable, "-c", *words)
    commands = [f"[{rank:2}] ['{rank} of 11', 'x', '']" for rank in range(11)]
    assert [line for line in lines(ended) if "'x'" in line] == commands


def test_rank_with_another_command_is_started_afresh(jobs: Jobs, folder: Path) -> None:
    program = PROGRAM + " # {process_id}"
    ended = preload(jobs, folder, "-n", 3, sys.executable, "-c", program, "x")
    said = [line + " x" for line in (*ranks(True, 0), *ranks(False, 1, 2))]
    assert [line for line in lines(ended) if line.endswith(" x")] == said
    assert ended.report == "--preload: its command differs; ranks 1-2 are started afresh"


@pytest.mark.parametrize("words", [["sh", "-c", "echo done"], ["--no-hook", "done.py"]])
def test_program_that_is_no_python_runs_without_preload(
    jobs: Jobs, folder: Path, words: list[str]
) -> None:
    (folder / "done.py").write_text("print('done')")
    ended = preload(jobs, folder, "-n", 2, *words)
    assert lines(ended) == ["[0] done", "[1] done"]
    assert ended.err == b""
    verbose = preload(jobs, folder, "-v", "-n", 2, *words)
    assert f"--preload: PROGRAM is not a Python program with the hook; {AFRESH}" in verbose.report


def test_script_as_interpreter_prevents_forking(jobs: Jobs, folder: Path) -> None:
    python = shell_script(folder / "python", f'exec {sys.executable} "$@"')
    ended = preload(jobs, folder, "-v", "--python", python, "-n", 2, "program.py")
    assert set(ranks(False, 0, 1)) <= set(lines(ended))
    assert f"--preload: {python} is a script; {AFRESH}" in ended.report


def test_sitecustomize_of_the_user_runs_before_preloaded_imports(jobs: Jobs, folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import builtins; builtins.custom = 'custom'")
    (folder / "mine.py").write_text("said = custom")
    (folder / "program.py").write_text("import mine; print(mine.said)")
    ended = preload(jobs, folder, "-n", 2, "program.py", env={"PYTHONPATH": str(folder)})
    assert lines(ended) == ["[0] custom", "[1] custom"]


def test_forked_ranks_get_their_cores_and_limits(jobs: Jobs, folder: Path) -> None:
    (folder / "program.py").write_text(
        "import os, resource;"
        "print(os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE), os.getcwd())"
    )
    words = ["-n", 2, "--bind-cores", "on", "-C", "/", folder / "program.py"]
    assert lines(preload(jobs, folder, *words, module="abc")) == lines(jobs.run(*words))


def test_preload_works_on_other_hosts(jobs: Jobs, folder: Path) -> None:
    words = ["--hosts", "a:2,b:2", "--via", FAKE_SSH, "program.py"]
    ended = preload(jobs, folder, *words)
    forked = [
        line.replace("] ", " a] " if line[1] in "01" else " b] ", 1)
        for line in ranks(True, *range(4))
    ]
    assert lines(ended) == sorted(["[0 a] imported", "[2 b] imported", *forked])


# --- what cannot be forked ---

UNFIT = {
    "import nosuch": "cannot import mine: ModuleNotFoundError: No module named 'nosuch'",
    "raise SystemExit(3)": "cannot import mine: SystemExit: 3",
    "import threading, time; threading.Thread(target=time.sleep, args=(9,), name='T', daemon=True).start()": "an import has started a thread (T)",
    "import sys; sys.path.insert(0, '/tmp')": "an import has put another folder in front of sys.path",
    "import os; os.kill(os.getpid(), 9)": "the importing process was killed by SIGKILL",
    "import os; os._exit(3)": "the importing process exited (3)",
}  # fmt: skip


@pytest.mark.parametrize("body", UNFIT)
def test_unfit_import_prevents_forking(jobs: Jobs, folder: Path, body: str) -> None:
    (folder / "mine.py").write_text(body)
    (folder / "program.py").write_text("import sys; print('mine' in sys.modules)")
    ended = preload(jobs, folder, "-n", 2, "program.py")
    assert lines(ended) == ["[0] False", "[1] False"]
    assert ended.report == f"--preload: {UNFIT[body]}; {AFRESH}"


def test_folder_that_an_import_appends_to_the_path_stays(jobs: Jobs, folder: Path) -> None:
    (folder / "mine.py").write_text(f"{MODULE}; import sys; sys.path.append('/nowhere')")
    (folder / "program.py").write_text(f"{PROGRAM}; print(sys.path[-1])")
    ended = preload(jobs, folder, "-n", 2, "program.py")
    shown = ["[0] /nowhere", "[0] imported", "[1] /nowhere", *ranks(True, 0, 1)]
    assert lines(ended) == sorted(shown) and ended.err == b""


def test_random_hash_seed_prevents_forking(jobs: Jobs, folder: Path) -> None:
    ended = preload(jobs, folder, "-n", 2, "-x", "PYTHONHASHSEED=random", "program.py")
    assert set(ranks(False, 0, 1)) <= set(lines(ended))
    assert ended.report == (
        f"--preload: PYTHONHASHSEED=random asks for a different seed in each rank; {AFRESH}"
    )


def test_variables_of_each_rank_are_set(jobs: Jobs, folder: Path) -> None:
    """In Python, and for what it starts."""
    (folder / "program.py").write_text(
        "import os, subprocess; import mine; print(os.environ['OWN'], flush=True);"
        "subprocess.run('echo $OWN $MCJAX_LOCAL_PROCESS_ID', shell=True)"
    )
    ended = preload(jobs, folder, "-n", 2, "-x", "OWN=<{process_id}>", "program.py")
    shown = ["[0] <0>", "[0] <0> 0", "[0] imported", "[1] <1>", "[1] <1> 1"]
    assert lines(ended) == shown
    assert ended.err == b""


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "PYTHONHASHSEED"])
def test_rank_that_would_read_another_value_is_started_afresh(
    jobs: Jobs, folder: Path, name: str
) -> None:
    ended = preload(jobs, folder, "-n", 3, "-x", f"{name}={{process_id}}", "program.py")
    shown = [line for line in lines(ended) if "imported" not in line]
    assert shown == [*ranks(True, 0), *ranks(False, 1, 2)]
    assert ended.report == (
        f"--preload: {name} differs between ranks, and is read before the program; "
        "ranks 1-2 are started afresh"
    )


def test_deleted_working_directory_does_not_prevent_forking(jobs: Jobs, folder: Path) -> None:
    (folder / "there").mkdir()
    (folder / "program.py").write_text("import os; os.rmdir('../there')\n" + PROGRAM)
    ended = preload(jobs, folder, "-C", "there", "../program.py", env={"PYTHONPATH": str(folder)})
    assert lines(ended) == ["[0] imported", *ranks(True, 0)]


# --- ends ---

READY = "import os, sys, time; print('ready', 'pid', os.getpid(), flush=True); "


@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("os.abort()", 134)])
def test_end_of_a_forked_rank_is_reported(jobs: Jobs, folder: Path, end: str, status: int) -> None:
    program = f"{READY}{end} if os.environ['JAX_PROCESS_ID'] == '1' else time.sleep(99)"
    (folder / "program.py").write_text(program)
    ended = preload(jobs, folder, "-n", 3, "program.py")
    assert ended.status == status, ended.stderr
    assert "rank 1 " in ended.report


def test_tracebacks_show_only_the_programs_lines(jobs: Jobs, folder: Path) -> None:
    (folder / "program.py").write_text("def f():\n    raise ValueError('x')\nf()\n")
    ended = preload(jobs, folder, "program.py")
    lines = [line for line in ended.stderr.splitlines() if line.startswith("[0]")]
    assert [line for line in lines if line.strip("[0]~^ ")] == [  # Python 3.13 marks places
        "[0] Traceback (most recent call last):",
        f'[0]   File "{folder}/program.py", line 3, in <module>',
        "[0]     f()",
        f'[0]   File "{folder}/program.py", line 2, in f',
        "[0]     raise ValueError('x')",
        "[0] ValueError: x",
    ]


IMPORTING = "print('importing', flush=True); import time; time.sleep(99)"


def importing(jobs: Jobs, folder: Path, body: str = IMPORTING) -> "tuple[object, list[int]]":
    """A job whose import server imports for long; its processes, from the launcher's child down."""
    (folder / "mine.py").write_text(body)
    running = jobs.start("--preload", "mine", "-n", 3, "program.py", cwd=folder)
    running.read_until("importing")
    below = psutil.Process(running.process.pid).children(recursive=True)
    return running, [process.pid for process in below]


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143), ("HUP", 129)])
@pytest.mark.parametrize("deaf", [False, True])
def test_signal_during_imports_ends_the_job(
    jobs: Jobs, folder: Path, name: str, status: int, deaf: bool
) -> None:
    ignore = f"import signal; signal.signal(signal.SIG{name}, signal.SIG_IGN); "
    ignore += "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    running, _ = importing(jobs, folder, (ignore if deaf else "") + IMPORTING)
    if deaf:
        running.kill_now(f"SIG{name}")  # type: ignore[attr-defined]
    else:
        running.signal(signal.Signals[f"SIG{name}"])  # type: ignore[attr-defined]
    ended = running.finish()  # type: ignore[attr-defined]
    assert ended.status == status, ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("victim", ["launcher", "guardian", "agent"])
def test_death_during_imports_leaves_nothing(jobs: Jobs, folder: Path, victim: str) -> None:
    running, (guardian, agent, server) = importing(jobs, folder)
    pid = {"launcher": running.process.pid, "guardian": guardian, "agent": agent}[victim]  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)
    ended = running.finish()  # type: ignore[attr-defined]
    assert ended.status == (-signal.SIGKILL if victim == "launcher" else 255), ended.stderr
    eventually(lambda: not alive(server))


def test_stack_of_a_slow_import_is_shown(jobs: Jobs, folder: Path) -> None:
    (folder / "mine.py").write_text(IMPORTING)
    hosts = ["--hosts", "a,b", "--via", FAKE_SSH, "--preload", "abc,mine"]
    running = jobs.start(*hosts, "program.py", cwd=folder, stderr=subprocess.STDOUT)
    running.read_until("importing", 2)
    running.signal(signal.SIGQUIT)
    running.read_until("importing mine on hosts a, b for")
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 130
    assert "the importing processes on a, b:" in ended.stdout
    assert f"  > {folder}/mine.py:1 in <module>: print('importing'" in ended.stdout
    *_, importing, never, _ = ended.stdout.splitlines()
    assert importing.startswith("mcjax-launch: importing mine on hosts a, b for")
    assert never == "mcjax-launch: both ranks: never started"


def test_import_server_leaves_no_process_but_ranks(jobs: Jobs, folder: Path) -> None:
    (folder / "program.py").write_text(READY + "time.sleep(99)")
    running = jobs.start("--preload", "mine", "-n", 3, "program.py", cwd=folder)
    running.read_until("ready", 3)
    agent = running.agent
    assert {process.pid for process in agent.children(recursive=True)} == set(running.pids())
    began = time.monotonic()
    agent.kill()
    eventually(lambda: not any(alive(pid) for pid in running.pids()))
    assert time.monotonic() - began < 20
    assert running.finish().status == 255


@pytest.mark.parametrize("pause_ms", range(0, 200, 50))
def test_signal_at_any_moment_ends_forked_ranks(jobs: Jobs, folder: Path, pause_ms: int) -> None:
    """Also while ranks are being forked."""
    (folder / "program.py").write_text(READY + "time.sleep(99)")
    running = jobs.start("--preload", "mine", "-n", 8, "program.py", cwd=folder)
    running.read_until("imported")
    time.sleep(pause_ms / 1000)  # any moment will do
    running.signal(signal.SIGTERM)
    assert running.finish().status == 143


@pytest.mark.parametrize("victim", ["launcher", "agent", "server"])
@pytest.mark.parametrize("pause_ms", [0, 30])
def test_death_at_any_moment_ends_forked_ranks(
    jobs: Jobs, folder: Path, victim: str, pause_ms: int
) -> None:
    (folder / "program.py").write_text("print('rank')")
    running = jobs.start("--preload", "mine", "-n", 8, "program.py", cwd=folder)
    running.read_until("imported")
    below = psutil.Process(running.process.pid).children(recursive=True)
    pids = [running.process.pid, *(process.pid for process in below)]
    at = ["launcher", "guardian", "agent", "server"].index(victim)
    time.sleep(pause_ms / 1000)  # any moment will do
    for pid in pids[at : at + 1]:  # all may have ended by now
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    ended = running.finish()
    if victim == "server":
        assert ended.status in (0, 137), ended.stderr  # 137: it was a rank by then

"""--preload with --watch: the import server stays from run to run, as long as it is of use."""

import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from jobs import Jobs, Running, alive, eventually

pytestmark = pytest.mark.only_linux("forks")

WAITS = "waiting for the next save"
MODULE = "import os; by = os.getpid(); value = 1"
PROGRAM = """
import mine, other
print("by", mine.by, "value", mine.value, other.value, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text(MODULE)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "other.py").write_text("value = 1")
    (tmp_path / "work" / "program.py").write_text(PROGRAM)
    return tmp_path


def start(jobs: Jobs, folder: Path, *options: object, preload: str = "mine") -> Running:
    words = ["-v", "-n", 3, "--preload", preload, *options, "--watch", "program.py"]
    environ = {"PYTHONPATH": str(folder / "elsewhere")}
    how = {"cwd": folder / "work", "env": environ, "stderr": subprocess.STDOUT}
    return jobs.start(*words, **how)  # type: ignore[arg-type]


def end(running: Running) -> list[str]:
    """End a launcher; the lines that were printed, without prefixes."""
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 130, ended.stdout
    return [line.partition("] ")[2] or line for line in ended.stdout.splitlines()]


def server(running: Running) -> psutil.Process:
    """The import server, when no rank is there."""
    (child,) = running.agent.children()
    return child


def test_each_run_reimports_only_modules_that_are_not_preloaded(jobs: Jobs, folder: Path) -> None:
    running = start(jobs, folder)
    for number in (2, 3):
        running.read_until(WAITS, number - 1)
        (folder / "work" / "other.py").write_text(f"value = {number}")
    running.read_until(WAITS, 3)
    lines = end(running)
    seen = [line for line in lines if line.startswith("by ")]
    by = seen[0].split()[1]
    assert sorted(seen) == [f"by {by} value 1 {number}" for number in (1, 2, 3) for _ in range(3)]
    assert sum("ranks 0-2 forked again" in line for line in lines) == 2
    assert not any("stray" in line for line in lines)


def test_changed_preloaded_module_is_imported_again(jobs: Jobs, folder: Path) -> None:
    """It is in no folder that is watched: the next run notices, and the run after that forks."""
    running = start(jobs, folder)
    running.read_until(WAITS)
    mine = folder / "elsewhere" / "mine.py"
    mine.write_text(f"{MODULE}; value = 22")
    for number in (2, 3):
        (folder / "work" / "other.py").write_text(f"value = {number}")
        running.read_until(WAITS, number)
    lines = end(running)
    values = sorted(tuple(line.split()[3:]) for line in lines if line.startswith("by "))
    assert values == [(*pair,) for pair in (("1", "1"), ("22", "2"), ("22", "3")) for _ in range(3)]
    note = f"mcjax-launch: --preload: {mine} has changed; the ranks are started afresh"
    assert lines.count(note) == 1
    assert sum("forked after importing mine" in line for line in lines) == 2


def test_dead_import_server_is_replaced(jobs: Jobs, folder: Path) -> None:
    running = start(jobs, folder)
    running.read_until(WAITS)
    old = server(running)
    old.kill()
    eventually(lambda: not alive(old.pid))
    (folder / "work" / "other.py").write_text("value = 2")
    running.read_until(WAITS, 2)
    assert server(running).pid != old.pid
    lines = end(running)
    assert sum(line.endswith("value 1 2") for line in lines) == 3


def test_an_idle_wait_costs_nothing(jobs: Jobs, folder: Path) -> None:
    running = start(jobs, folder)
    running.read_until(WAITS)
    (folder / "work" / "other.py").write_text("value = 2")
    running.read_until(WAITS, 2)
    everyone = [psutil.Process(running.process.pid), running.guardian, running.agent]
    everyone.append(server(running))

    def switches() -> int:
        return sum(process.num_ctx_switches().voluntary for process in everyone)

    eventually(lambda: all(process.status() == psutil.STATUS_SLEEPING for process in everyone))
    before = switches()
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(2)
    assert switches() - before < 10
    end(running)


def test_a_program_may_begin_and_cease_to_import_jax(jobs: Jobs, folder: Path) -> None:
    """And may set other variables before, which jax has to see."""
    (folder / "elsewhere" / "jax.py").write_text("import os; flags = os.environ.get('JAX_FLAGS')")
    program = folder / "work" / "program.py"
    none = "print('no jax', flush=True)"
    plain = "import jax\nprint('flags', jax.flags, flush=True)"
    texts = [none, plain, plain, f"import os\nos.environ['JAX_FLAGS'] = 'a'\n{plain}", none]
    program.write_text(texts[0])
    running = start(jobs, folder, preload="auto")
    for number, text in enumerate([*texts[1:], texts[3]], 1):
        running.read_until(WAITS, number)
        program.write_text(text)
    running.read_until(WAITS, len(texts) + 1)
    lines = end(running)
    said = [line for line in lines if line.startswith(("no jax", "flags"))]
    runs = ["no jax", "flags None", "flags None", "flags a", "no jax", "flags a"]
    assert said == [line for line in runs for _ in range(3)]
    how = [line.partition(" forked ")[2].split()[0] for line in lines if "ranks 0-2 forked" in line]
    assert how == ["after", "again", "after", "again"]


def test_a_single_rank_is_forked_too(jobs: Jobs, folder: Path) -> None:
    """Which --preload auto does for no other job of one rank."""
    (folder / "elsewhere" / "jax.py").write_text("import os; by = os.getpid()")
    program = folder / "work" / "program.py"
    program.write_text("import jax\nprint('by', jax.by, flush=True)")
    words = ["-n", 1, "--watch", "program.py"]
    environ = {"PYTHONPATH": str(folder / "elsewhere"), "MCJAX_PRELOAD": "auto"}
    how = {"cwd": folder / "work", "env": environ, "stderr": subprocess.STDOUT}
    running = jobs.start(*words, **how)  # type: ignore[arg-type]
    running.read_until(WAITS)
    program.write_text(program.read_text() + "\n")
    running.read_until(WAITS, 2)
    first, second = [line for line in end(running) if line.startswith("by ")]
    assert first == second


def test_save_during_an_import_restarts_the_import(jobs: Jobs, folder: Path) -> None:
    mine = folder / "elsewhere" / "mine.py"
    mine.write_text(
        f"{MODULE}\nwhile not os.path.exists('go'): time.sleep(0.01)".replace("os;", "os, time;")
    )
    running = start(jobs, folder)
    running.read_until("job ")
    eventually(lambda: any("python" in child.name() for child in running.agent.children()))
    first = server(running).pid
    (folder / "work" / "other.py").write_text("value = 2")
    running.read_until("other.py has changed: starting again")
    eventually(lambda: not alive(first))
    (folder / "work" / "go").touch()
    running.read_until(WAITS)
    lines = end(running)
    assert [line.split()[-1] for line in lines if line.startswith("by ")] == ["2"] * 3

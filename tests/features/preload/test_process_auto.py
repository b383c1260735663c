"""--preload auto without JAX: for which jobs a stand-in of that name is imported once, and how."""

import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs
from remote import FAKE_SSH

AFRESH = "the ranks are started afresh"
PROGRAM = "import jax, os; print('rank', jax.by == os.getpid(), flush=True)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "jax.py").write_text("import os, difflib; by = os.getpid()")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def run(jobs: Jobs, folder: Path, *words: object, **more: str) -> Ended:
    env = {"PYTHONPATH": str(folder / "library"), **more}
    ended = jobs.run("-v", "-n", 2, "--preload", "auto", *words, cwd=folder, env=env)
    assert ended.status == 0, ended.stderr
    return ended


def how(ended: Ended) -> tuple[int, str]:
    """How many ranks were forked, and what is said of it."""
    lines = [line for line in ended.report.splitlines() if "--preload" in line or "forked" in line]
    return ended.stdout.count("rank False"), " ".join(lines).replace(f"; {AFRESH}", "")


@pytest.mark.parametrize(
    "words", [["program.py"], ["-m", "program"], [sys.executable, "program.py"]]
)
def test_ranks_of_a_program_that_imports_jax_are_forked(
    jobs: Jobs, folder: Path, words: list[str]
) -> None:
    forked, said = how(run(jobs, folder, *words))
    assert forked == 2 and said.endswith("(program.py imports jax)")


NOT_FORKED = {
    ("-n", "1", "program.py"): "--preload auto: no host has two ranks",
    ("other.py",): "--preload auto: other.py does not import JAX",
    ("-m", "other"): "--preload: other.py does not import JAX",
    ("-m", "cProfile", "-o", "profile", "program.py"): "--preload: cProfile.py does not import JAX",
    ("--no-hook", "program.py"): "--preload auto: PROGRAM is not a Python program with the hook",
    ("--wrap", "env", "program.py"): "--preload auto: ranks run under --wrap",
    ("--stdin", "program.py"): "--preload auto: rank 0 reads --stdin",
    (sys.executable, "-Ximporttime", "program.py"): "--preload: -X importtime observes the imports of each process",
    ("-x", "PYTHONTRACEMALLOC=1", "program.py"): "--preload: -X tracemalloc observes the imports of each process",
    ("--preload", "none", "program.py"): "",
}  # fmt: skip


@pytest.mark.parametrize("words", NOT_FORKED, ids=lambda words: "_".join(words[-2:]))
def test_unsuitable_programs_are_started_afresh(
    jobs: Jobs, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "other.py").write_text("import os; print('rank', os.name == 0)")
    _, said = how(run(jobs, folder, *words))
    if NOT_FORKED[words].endswith("JAX") and "-m" in words:  # where it is, depends on the Python
        assert "--preload: " in said
    else:
        assert said.startswith(NOT_FORKED[words]) and "forked" not in said


IN_THE_LIBRARY = {
    "print('hello')": "an import prints: hello",
    "1/0": "cannot import jax: ZeroDivisionError: division by zero",
    "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True, name='T').start()": "an import has started a thread (T)",
    "os._exit(3)": "the importing process exited (3)",
}  # fmt: skip


@pytest.mark.parametrize("text", IN_THE_LIBRARY)
def test_failing_automatic_preload_prints_nothing(jobs: Jobs, folder: Path, text: str) -> None:
    """Each rank does what it would do anyway."""
    with (folder / "library" / "jax.py").open("a") as file:
        file.write(f"\nif not os.path.exists('rank'):\n    {text}\n")
    (folder / "program.py").write_text(f"open('rank', 'w'); {PROGRAM}")
    env = {"PYTHONPATH": str(folder / "library")}
    ended = run(jobs, folder, "program.py")
    assert how(ended) == (0, f"--preload: {IN_THE_LIBRARY[text]}")
    assert sorted(ended.stdout.splitlines()) == ["[0] rank True", "[1] rank True"]
    (folder / "rank").unlink()
    quiet = jobs.run("-n", 2, "--preload", "auto", "program.py", cwd=folder, env=env)
    assert (quiet.status, quiet.report) == (0, "")


@pytest.mark.parametrize("name", ["jax", "difflib"])
def test_own_modules_of_the_program_run_in_each_rank(jobs: Jobs, folder: Path, name: str) -> None:
    """It runs in each rank, as often as ever."""
    (folder / f"{name}.py").write_text("import os; by = os.getpid(); print('mine', flush=True)")
    ended = run(jobs, folder, "program.py")
    assert ended.stdout.count("mine") == 2
    assert "difflib.py would be" in how(ended)[1] or "jax.py would be" in how(ended)[1]


def test_each_host_decides_on_forking_by_itself(jobs: Jobs, folder: Path) -> None:
    """By the file that is there, and by how many ranks that has."""
    hosts = ["--hosts", "a:2,b:1", "-n", 3, "--via", FAKE_SSH]
    forked, said = how(run(jobs, folder, *hosts, "program.py"))
    assert forked == 2
    assert "host b: a single rank on its host; rank 2 is started afresh" in said

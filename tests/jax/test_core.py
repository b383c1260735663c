"""The core of the package: what runs without the folders that can be deleted."""

import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Protocol

import pytest
from jobs import PROGRAMS, Ended, Jobs, Running
from remote import FAKE_SSH

import mcjax_launch
from mcjax_launch.options import features

FOLDER = Path(mcjax_launch.__file__).parent / "features"
FEATURES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
TOY = PROGRAMS / "toy.py"
ONCE = """
import os, jax
jax.distributed.initialize()
if os.environ["MCJAX_RESTART"] == "0" and jax.process_index() == 1:
    raise ValueError("at first")
print("well", flush=True)
"""


class Start(Protocol):
    """Starts the core with these arguments."""

    def __call__(self, *args: object) -> Running: ...


def copy_without(*names: str, to: Path) -> Path:
    """A copy of the package without these features."""
    package, copy = Path(mcjax_launch.__file__).parent, to / "mcjax_launch"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in names:
        shutil.rmtree(copy / "features" / name)
    return copy


@pytest.fixture
def start(jobs: Jobs, tmp_path: Path) -> Start:
    copy = copy_without(*FEATURES, to=tmp_path / "core")
    shutil.rmtree(copy / "python")
    return lambda *args: jobs.start(*args, cwd=copy.parent)


def end(running: Running) -> Ended:
    return running.finish()


def test_ranks_run_and_their_output_is_kept(start: Start, tmp_path: Path) -> None:
    ended = end(start("-n", 4, "-d", 2, "--log-dir", tmp_path / "logs", TOY))
    assert ended.status == 0
    assert ended.stdout.count(" of 4: sum -0.123987") == 4
    assert (tmp_path / "logs" / "3.out").read_text()


def test_failing_rank_is_named_with_its_exception(start: Start) -> None:
    ended = end(start("-n", 3, PROGRAMS / "fail.py", "raise"))
    assert ended.status == 1
    assert "mcjax-launch: rank 1 failed: ValueError: bad batch\n" in ended.stderr


def test_two_hosts_run(start: Start) -> None:
    ended = end(start("--hosts", "a,b", "--via", FAKE_SSH, "-n", 2, "-d", 2, TOY))
    assert (ended.status, "[1 b] " in ended.stdout) == (0, True)


def test_interrupt_ends_the_ranks(start: Start) -> None:
    running = start("-n", 2, "sh", "-c", "echo ready; exec sleep 1000")
    running.read_until("ready", 2)
    running.signal(signal.SIGINT)
    ended = end(running)
    assert ended.status == 130
    assert "stopped by SIGINT" in ended.stderr


def test_job_is_restarted(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "once.py"
    program.write_text(ONCE)
    ended = end(start("-n", 2, "--max-restarts", 1, program))
    assert ended.status == 0
    assert "rank 1 failed: ValueError: at first" in ended.stderr
    assert ended.stdout.count("well") >= 2


@pytest.mark.parametrize("name", FEATURES)
def test_jobs_run_without_a_feature(jobs: Jobs, tmp_path: Path, name: str) -> None:
    copy_without(name, to=tmp_path)
    ended = jobs.start("-n", 2, "-d", 2, TOY, cwd=tmp_path).finish()
    assert (ended.status, ended.stdout.count(" of 2: sum ")) == (0, 2)


ALONE = {
    "check": (["--check", "-n", 1, "-d", 1], "passed: 1 rank on 1 host"),
    "emit": (["--emit", "slurm", "--num-hosts", 2, "train.py"], "#SBATCH --nodes=2"),
    "preview": (["--preview", "-n", 2, "-d", 1, TOY], "of 2: sum "),
}


@pytest.mark.parametrize("name", ALONE)
def test_feature_needs_no_other(jobs: Jobs, tmp_path: Path, name: str) -> None:
    """Some say what other features are to do in their jobs."""
    copy_without(*({*FEATURES} - {name}), to=tmp_path)
    words, shown = ALONE[name]
    ended = jobs.start(*words, cwd=tmp_path).finish()
    assert (ended.status, shown in ended.stdout) == (0, True), ended.stderr


def test_watch_needs_no_other_feature(jobs: Jobs, tmp_path: Path) -> None:
    copy_without(*({*FEATURES} - {"watch"}), to=tmp_path)
    program = tmp_path / "says.py"
    program.write_text("print('first', flush=True)")
    running = jobs.start("-n", 1, "--watch", program, cwd=tmp_path)
    running.read_until("first", 1)
    program.write_text("print('second', flush=True)")
    running.read_until("second", 1)
    running.signal(signal.SIGINT)
    running.finish()


WITH_OPTIONS = {
    group.__module__.split(".")[2]: [option.long for option in group.declared.values()]
    for group in features.list_groups()
    if group.declared
}


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_options_of_a_missing_feature_are_unknown(jobs: Jobs, tmp_path: Path, name: str) -> None:
    copy_without(name, to=tmp_path)
    shown = jobs.start("--help", "all", cwd=tmp_path).finish().stdout
    for option in WITH_OPTIONS[name]:
        assert f"\n  {option} " not in shown
        ended = jobs.start(option, "x", "true", cwd=tmp_path).finish()
        assert (ended.status, f"{option}: no such option" in ended.stderr) == (2, True)


def test_missing_features_are_not_excluded(jobs: Jobs, tmp_path: Path) -> None:
    copy_without("detached", "emit", "watch", to=tmp_path)
    ended = jobs.start("--preview", "-n", 1, "-d", 1, "true", cwd=tmp_path).finish()
    assert (ended.status, "--preview: a job of one rank needs none" in ended.stderr) == (2, True)


def test_programs_are_launched_with_results_alone(jobs: Jobs, tmp_path: Path) -> None:
    """A result is made of the record in the last event."""
    copy = copy_without(*({*FEATURES} - {"report"}), to=tmp_path)
    code = (
        "import mcjax_launch; print(mcjax_launch.__file__)\n"
        "print(mcjax_launch.launch('echo', 'hi', processes=2).ranks[1].stdout)"
    )
    ended = jobs.start(launcher=[sys.executable, "-c", code], cwd=tmp_path).finish()
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.split() == [str(copy / "__init__.py"), "hi"]


def test_the_feature_of_the_architecture_works(jobs: Jobs, tmp_path: Path) -> None:
    """The page has it in full: its two modules, and its package has a docstring."""
    page = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    folder = copy_without(to=tmp_path) / "features" / "announce"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""--announce."""\n')
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL):
        (folder / name).write_text(text)
    ended = jobs.start("--announce", "all run", "-n", 2, "true", cwd=tmp_path).finish()
    assert (ended.status, ended.stderr) == (0, "mcjax-launch: all run\n")
    shown = jobs.start("--help", "output", cwd=tmp_path).finish().stdout
    assert "Print TEXT once all ranks run." in " ".join(shown.split())


def test_functions_are_called_without_other_features(jobs: Jobs, tmp_path: Path) -> None:
    copy_without(*({*FEATURES} - {"report", "session"}), to=tmp_path)
    code = "import math, mcjax_launch; print(mcjax_launch.run(math.sqrt, processes=2, args=(4,)))"
    ended = jobs.start(launcher=[sys.executable, "-c", code], cwd=tmp_path).finish()
    assert (ended.status, ended.stdout, ended.stderr) == (0, "[2.0, 2.0]\n", "")

"""Programs that take their coordinates from their command line, started without arguments."""

import sys
from pathlib import Path

import pytest
from jobs import Jobs
from remote import FAKE_SSH

PROGRAM = """
import sys
import jax
rank, ranks = int(sys.argv[2]), int(sys.argv[3])
jax.distributed.initialize(sys.argv[1], ranks, rank)
print("argv", rank, ranks, *sys.argv[4:])
"""
WORDS = "{coordinator} {process_id} {num_processes}"
TOLD = f"toy.py takes its coordinates from its arguments: running toy.py {WORDS}"
WAYS = {
    "here": [],
    "afresh": ["--preload", "none"],
    "hosts": ["--hosts", "a,b", "--via", FAKE_SSH, "--python", sys.executable],
    "sync": ["--hosts", "a,b", "--via", FAKE_SSH, "--python", sys.executable, "--sync", "."],
}


@pytest.fixture
def folder(stand_in: Path) -> Path:
    (stand_in / "toy.py").write_text(PROGRAM)
    return stand_in


def argv(text: str) -> list[str]:
    """What the ranks say of their arguments."""
    return sorted(line for line in text.splitlines() if "argv" in line)


@pytest.mark.parametrize("way", WAYS)
def test_coordinates_are_filled_in(jobs: Jobs, folder: Path, way: str) -> None:
    ended = jobs.run("-n", 2, "--no-prefix", *WAYS[way], "toy.py", cwd=folder)
    assert ended.status == 0, ended.stderr
    assert argv(ended.stdout) == ["argv 0 2", "argv 1 2"]
    assert ended.report == TOLD


def test_program_gets_coordinates_without_the_hook(jobs: Jobs, folder: Path) -> None:
    ended = jobs.run("--no-hook", "toy.py", cwd=folder)
    assert argv(ended.stdout) == ["[0] argv 0 1"], ended.stderr


def test_program_below_python_gets_coordinates(jobs: Jobs, folder: Path) -> None:
    ended = jobs.run("-n", 2, "--no-prefix", sys.executable, "toy.py", cwd=folder)
    assert argv(ended.stdout) == ["argv 0 2", "argv 1 2"], ended.stderr
    assert ended.report == TOLD.replace("running ", f"running {sys.executable} ")


def test_coordinates_are_filled_in_beside_other_arguments(jobs: Jobs, folder: Path) -> None:
    ended = jobs.run("-n", 2, "--no-prefix", "toy.py", "--lr", "3", cwd=folder)
    assert argv(ended.stdout) == ["argv 0 2 --lr 3", "argv 1 2 --lr 3"], ended.stderr
    assert ended.report == f"{TOLD} --lr 3"


DEFAULTS = """
import argparse
def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    return parser.parse_args()
"""
TRAIN = """
import jax, options
args = options.parse()
if args.ranks > 1:
    jax.distributed.initialize("localhost:1", args.ranks, args.rank)
"""


def test_arguments_are_named_where_ranks_do_without(jobs: Jobs, folder: Path) -> None:
    (folder / "options.py").write_text(DEFAULTS)
    (folder / "train.py").write_text(TRAIN)
    ended = jobs.run("-n", 2, "train.py", "--rank=0", cwd=folder)
    jobs_of_one = "these are 2 separate single-process jobs"
    command = "train.py --ranks {num_processes} --rank=0"
    assert f"{jobs_of_one}; its coordinates come from arguments: run {command}\n" in ended.stderr


def test_variable_of_another_launcher_gets_a_hint(jobs: Jobs, folder: Path) -> None:
    (folder / "train.py").write_text("import os\nrank = int(os.environ['RANK'])\n")
    ended = jobs.run("-n", 2, "train.py", cwd=folder)
    hint = "hint: --env-style torch sets RANK and torchrun's other variables; "
    assert hint in ended.report
    assert jobs.run("-n", 2, "--env-style", "torch", "train.py", cwd=folder).status == 0


def test_given_arguments_are_unchanged(jobs: Jobs, folder: Path) -> None:
    ended = jobs.run("toy.py", "{coordinator}", "0", "1", "{host}x", cwd=folder)
    assert (argv(ended.stdout), ended.report) == (["[0] argv 0 1 localhostx"], "")


def test_dry_run_shows_added_coordinates(jobs: Jobs, folder: Path) -> None:
    ended = jobs.run("-n", 2, "--dry-run", "toy.py", cwd=folder)
    assert "toy.py 127.0.0.1:PORT 0 2\n" in ended.stdout
    assert "toy.py 127.0.0.1:PORT 1 2\n" in ended.stdout
    assert ended.report == TOLD


def test_hint_shows_the_command_with_an_unknown_argument(jobs: Jobs, folder: Path) -> None:
    (folder / "more.py").write_text(
        f"import sys; data = open(sys.argv[4]).read()\n{PROGRAM.replace('4:', '5:')}"
    )
    ended = jobs.run("-n", 2, "--timeout", "1m", "more.py", cwd=folder)
    assert ended.status == 1
    command = f"mcjax-launch -n 2 --timeout 1m more.py {WORDS} ARG4"
    assert ended.report.splitlines()[-1] == f"hint: more.py needs arguments: {command}"


def test_refusing_argument_parser_gets_a_hint(jobs: Jobs, folder: Path) -> None:
    (folder / "more.py").write_text("""
import argparse, jax
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--process-id", type=int, required=True)
args = parser.parse_args()
jax.distributed.initialize("localhost:1", 2, args.process_id)
""")
    ended = jobs.run("-n", 2, "more.py", cwd=folder)
    assert ended.status == 2
    command = "mcjax-launch -n 2 more.py --process-id {process_id} DATA"
    assert ended.report.splitlines()[-1] == f"hint: more.py needs arguments: {command}"


def test_placeholders_are_named_where_the_source_does_not_tell(jobs: Jobs, folder: Path) -> None:
    (folder / "more.py").write_text(PROGRAM.replace("int(sys.argv[3])", "int(sys.argv[-4])"))
    ended = jobs.run("more.py", cwd=folder)
    assert ended.status == 1
    there_are = "{process_id}, {num_processes} and {coordinator}"
    hint = f"hint: in PROGRAM's arguments, {there_are} are replaced by each rank's own"
    assert ended.report.splitlines()[-1] == hint

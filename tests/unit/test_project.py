"""Options of [tool.mcjax-launch] in the current folder's pyproject.toml."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import pages
import pytest

import mcjax_launch
from mcjax_launch.cli import project
from mcjax_launch.cli.command import command, main
from mcjax_launch.cli.origins import describe_origins, rewrite_words
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.report.options import ReportOptions
from mcjax_launch.options.options import Options

Write = Callable[..., Path]
OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write lines of the table into a file in the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(lines: str, head: str = "[tool.mcjax-launch]\n") -> Path:
        path = tmp_path / "pyproject.toml"
        path.write_text(f"{head}{lines}\n")
        return path

    return write


def read(*words: str) -> tuple[Options, click.Context]:
    context = command.make_context("mcjax-launch", list(words))
    return project.complete(Options(**context.params), context), context


# A line of the table, and the value of the option.
VALUES: dict[str, tuple[str, Any]] = {
    "num-processes = 4": ("num_processes", 4),
    'num-processes = "4"': ("num_processes", 4),
    "no-hook = true": ("no_hook", True),
    "no-hook = false": ("no_hook", False),
    'timeout = "5m"': ("timeout", 300.0),
    "grace = 0.5": ("grace", 0.5),
    'hosts = "hosts.txt"': ("hosts", "hosts.txt"),
    'hosts = ["a slots=2", "b"]': ("hosts", ("a slots=2", "b")),
    "show = [0, 2]": ("show", frozenset({0, 2})),
    'show = "0-2"': ("show", frozenset({0, 1, 2})),
    'sync = ["a.py", "b c"]': ("sync", ("a.py", "b c")),
    'sync = "b c"': ("sync", ("b c",)),
    'wrap = "0:strace -f"': ("wrap", ("0:strace -f",)),
    'env = ["A=1", "B"]': ("env", ("A=1", "B")),
    'env = "A=1"': ("env", ("A=1",)),
    'env = {A = "x y", B = 2}': ("env", ("A=x y", "B=2")),
    'preload = ["jax", "flax"]': ("preload", ("jax", "flax")),
    'gpus-per-process = "all"': ("gpus_per_process", "all"),
    'color = "never"': ("color", "never"),
    'engine-option = ["--partition=gpu"]': ("engine_option", ("--partition=gpu",)),
}


@pytest.mark.parametrize("line", VALUES)
def test_value_is_read_as_the_option_has_it(line: str, table: Write) -> None:
    table(line)
    name, value = VALUES[line]
    assert getattr(read("a.py")[0], name) == value


def test_command_line_wins_over_variable_and_variable_over_file(
    table: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    table('num-processes = 2\ngrace = 2\nenv = ["A=2"]\nno-hook = true\ntimeout = 2')
    monkeypatch.setenv("MCJAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("MCJAX_GRACE", "3")
    monkeypatch.setenv("MCJAX_NO_HOOK", "0")
    options, context = read("-n", "4", "-x", "B=4", "a.py")
    assert (options.num_processes, options.grace, options.timeout) == (4, 3, 2)
    assert (options.env, options.no_hook) == (("B=4",), False)
    assert rewrite_words(options, context) == [
        *("--num-processes", "4", "--env", "B=4", "--grace", "3", "--timeout", "2", "--", "a.py")
    ]
    assert sorted(describe_origins(options, context)) == [
        "from MCJAX_GRACE: --grace 3",
        "from pyproject.toml: --timeout 2",
    ]


def test_origins_are_told_without_secrets(
    table: Write, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    table('env = {KEY = "secret"}\nverbose = true')
    monkeypatch.setenv("MCJAX_MAX_RESTARTS", "5")
    assert main(["--dry-run", "true"]) == 0
    told = capfd.readouterr().err.splitlines()[:2]
    assert told == [
        "mcjax-launch: from pyproject.toml: --env KEY=... --verbose",
        "mcjax-launch: from MCJAX_MAX_RESTARTS: --max-restarts 5",
    ]
    assert main(["--dry-run", "-q", "true"]) == 0
    assert capfd.readouterr().err == ""


WRONG = {
    "num-proceses = 4": "num-proceses: no such option; did you mean num-processes?",
    "num_processes = 4": "num_processes: no such option; did you mean num-processes?",
    "processes = 4": "processes: no such option; did you mean num-processes?",
    "n = 4": "n: no such option; did you mean num-processes?",
    "x = 4": "x: no such option; did you mean env?",
    "version = true": "version: no such option",
    "num-processes = 0": "num-processes: 0 is not a whole number of 1 or more",
    "num-processes = true": "num-processes: needs a value, N",
    "num-processes = {a = 1}": "num-processes: write a text in quotes, a number or a list of them",
    "num-processes = 2024-01-01": "num-processes: write a text in quotes, a number or a list of "
    "them",
    "chdir = 3": "chdir: 3 is neither text nor a path",
    'chdir = ["a"]': "chdir: ['a'] is neither text nor a path",
    'no-hook = "true"': "no-hook: needs true or false",
    'color = "blue"': "color: 'blue' is not one of auto, always, never",
    "sync = [[]]": "sync: write texts in quotes, or numbers",
    "env = {A = [1]}": "env: A: write a text in quotes, or a number",
    'hosts = "-"': "hosts: standard input is the program's own; give a file, or a list of hosts",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_line_is_refused(line: str, table: Write, capfd: pytest.CaptureFixture[str]) -> None:
    table(line)
    assert main(["true"]) == 2
    told = f"mcjax-launch: pyproject.toml: [tool.mcjax-launch] {WRONG[line]}\n"
    assert capfd.readouterr() == ("", told)


# What a command does, which PROGRAM it runs, and what belongs to one launcher or terminal.
OF_ONE_COMMAND = {
    *("attach", "jobs", "json", "stop", "wait", "check", "dry_run", "emit", "detach", "watch"),
    *("module", "stdin", "events", "num_hosts", "host_rank"),
}


@pytest.mark.parametrize("name", sorted(OF_ONE_COMMAND))
def test_option_of_one_command_is_refused(name: str, table: Write) -> None:
    long = name.replace("_", "-")
    table(f"{long} = true")
    with pytest.raises(LaunchError, match=rf"\] {long}: only the command line sets --{long}$"):
        read("true")


# The text of a whole file, and what is said of it.
FILES = {
    "[tool.mcjax-launch]\nno-hook = yes\n": "invalid value (at line 2, column 11)",
    "[tool.mcjax-launch\n": "expected ']' at the end of a table declaration (at line 1, column 19)",
    "[tool]\nmcjax-launch = 3\n": "tool.mcjax-launch is not a table: write [tool.mcjax-launch]",
}


@pytest.mark.parametrize("text", FILES)
def test_file_that_is_no_table_is_refused(text: str, table: Write) -> None:
    table(text, head="")
    with pytest.raises(LaunchError) as caught:
        read("true")
    assert str(caught.value) == f"pyproject.toml: {FILES[text]}"


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        '[project]\ndependencies = ["mcjax-launch==1.0", "mcjax-launch>=1"]\n{',
        '[dependency-groups]\ntest = ["mcjax-launch[functions]"]\nx = [mcjax-launch',
    ],
)
def test_file_without_the_table_is_not_parsed(text: str, table: Write) -> None:
    table(text, head="")
    assert project.read_options() == {}


@pytest.mark.parametrize(
    "text",
    [
        "[tool]\nmcjax-launch = {max-restarts = 3}",
        '[tool."mcjax-launch"]\nmax-restarts = 3',
        "[ tool . mcjax-launch ]\nmax-restarts=3",
    ],
)
def test_table_may_be_written_otherwise(text: str, table: Write) -> None:
    table(text, head="")
    assert project.read_options() == {"max_restarts": 3}
    table("tool.mcjax-launch.max-restarts = 3", head="")
    assert project.read_options() == {"max_restarts": 3}


ACTIONS = [["--version"], ["--help"], ["-h"], ["--jobs"]]


@pytest.mark.parametrize("words", ACTIONS)
def test_actions_that_run_no_job_read_no_file(words: list[str], table: Write) -> None:
    table("nonsense")
    assert main(words) == 0


def test_only_the_current_folder_counts(table: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    below = table("max-restarts = 3").parent / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert read("true")[0].max_restarts == 0


CONFLICTS = {
    ("profile = 'x'", "--no-hook"): "--profile (from pyproject.toml) cannot be combined with "
    "--no-hook",
    ("no-hook = true", "--profile x"): "--profile cannot be combined with --no-hook (from "
    "pyproject.toml)",
    ("hosts = 'a:2,b'", "-n 4"): "-n 4: the hosts have 3 slots; add hosts or slots (slots=K in the "
    "hosts file, --procs-per-host K) (pyproject.toml sets --hosts)",
    ("hosts = 'a.txt'", "-n 4"): "--hosts a.txt (from pyproject.toml): no such file",
    ("num-processes = 4", "--hosts a:2,b"): "-n 4 (from pyproject.toml): the hosts have 3 slots; "
    "add hosts or slots (slots=K in the hosts file, --procs-per-host K)",
}


@pytest.mark.parametrize(("line", "words"), CONFLICTS)
def test_conflict_names_the_file(
    line: str, words: str, table: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    table(line)
    assert main([*words.split(), "true"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.splitlines()[-1]) == ("", f"mcjax-launch: {CONFLICTS[line, words]}")


def test_commands_of_the_file_are_named_even_if_quiet(
    table: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    """A cloned repository's file decides what runs; what the user has typed is not named."""
    table("setup = 'uv sync'\nhosts = ['localhost']\nwrap = 'nice'\nmax-restarts = 3")
    assert main(["-q", "--dry-run", "--wrap", "time", "true"]) == 0
    expected = "mcjax-launch: pyproject.toml sets --hosts localhost --setup 'uv sync'\n"
    assert capfd.readouterr().err == expected


def test_check_does_not_overwrite_the_projects_report(table: Write) -> None:
    table("report = 'run.html'\nmax-restarts = 3")
    assert ReportOptions.of(read("--check")[0]).report is None
    assert ReportOptions.of(read("--check", "--report", "c.json")[0]).report == "c.json"
    assert ReportOptions.of(read("true")[0]).report == "run.html"


def test_scheduler_replaces_the_projects_hosts(
    table: Write, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table(
        "hosts = 'a,b'\nvia = 'ssh -F cfg {host}'\nengine-option = '--partition=gpu'\nmax-restarts = 3"
    )
    assert main(["--emit", "slurm", "--num-hosts", "2", "true"]) == 0
    script, err = capfd.readouterr()
    assert "--partition=gpu" in script and "--max-restarts 3" in script and not err
    assert "cfg" not in script
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    options, _ = read("true")
    assert (options.hosts, options.via, options.max_restarts) == (None, None, 3)
    monkeypatch.delenv("SLURM_JOB_ID")
    options, _ = read("--num-hosts", "2", "--host-rank", "0", "--coordinator", "h:1", "true")
    assert (options.hosts, options.max_restarts) == (None, 3)


# --- what other users can change ---


def test_table_that_others_can_change_is_refused(table: Write) -> None:
    path = table("max-restarts = 3")
    refused = r"^pyproject\.toml: \[tool\.mcjax-launch\] may name commands to run, and "
    path.chmod(0o666)
    with pytest.raises(LaunchError, match=rf"{refused}other users can write to it \(chmod go-w"):
        read("true")
    path.chmod(0o644)
    path.parent.chmod(0o777)
    with pytest.raises(LaunchError, match=rf"{refused}{path.parent}: every user can write to it"):
        read("true")
    path.write_text("[project]\ndependencies = ['mcjax-launch']\n")
    assert read("true")[0].max_restarts == 0
    path.parent.chmod(0o755)


def test_table_behind_a_link_counts_where_it_is(table: Write, tmp_path: Path) -> None:
    elsewhere = tmp_path / "everybodys"
    elsewhere.mkdir()
    table("max-restarts = 3").rename(elsewhere / "p.toml")
    (tmp_path / "pyproject.toml").symlink_to(elsewhere / "p.toml")
    assert read("true")[0].max_restarts == 3
    elsewhere.chmod(0o777)
    with pytest.raises(LaunchError, match=f"{elsewhere}: every user can write to it"):
        read("true")


@pytest.mark.parametrize("line", ["hosts = 'named'", "env-file = ['named']"])
def test_files_that_it_names_count(line: str, table: Write) -> None:
    named = table(line).parent / "named"
    named.touch(0o644)
    read("true")
    named.chmod(0o666)
    option = line.partition(" ")[0]
    with pytest.raises(
        LaunchError, match=rf"\] {option}: named decides what runs, and other users"
    ):
        read("true")
    read("--hosts", "named", "--env-file", "named", "true")


@as_root
def test_table_of_another_user_is_refused(table: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table("max-restarts = 3")
    path.chmod(0o644)
    os.chown(path, OTHER, OTHER)
    assert read("true")[0].max_restarts == 3  # root trusts all, as in containers
    os.chown(path.parent, 1234, 1234)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    with pytest.raises(LaunchError, match=f"and it belongs to user {OTHER}$"):
        read("true")
    os.chown(path, 1234, 1234)
    assert read("true")[0].max_restarts == 3


# --- who reads it ---


def test_documented_table_is_valid(table: Write) -> None:
    text = (pages.ROOT / "docs" / "reference.md").read_text()
    found = re.search(r"^    \[tool\.mcjax-launch\]\n(    .*\n)+", text, re.MULTILINE)
    assert found is not None
    table(dedent(found[0]), head="")
    assert read("true")[0].hosts == "hosts.txt"


def test_nothing_is_imported_for_a_project_without_the_table(table: Write) -> None:
    table("dependencies = ['mcjax-launch']", head="[project]\n")
    code = (
        "import sys; from mcjax_launch.cli.command import main; main(['--dry-run', 'true']);"
        "sys.exit(f'imported: {found}' if (found := {'tomllib'} & {*sys.modules}) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_programs_do_not_read_it(table: Write) -> None:
    table("num-processes = 3\nno-such-option = 1")
    result = mcjax_launch.launch(["true"], processes=2)
    assert (result.exit_status, len(result.ranks)) == (0, 2)

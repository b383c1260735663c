"""Nothing that comes from elsewhere acts on the user's terminal through a line of the launcher's."""

import sys
from pathlib import Path

import pytest
from jobs import Jobs, shell_script

pytestmark = pytest.mark.quick

RED = "\x1b[31m"
SHOWN = "\\x1b[31m"
SHELL = "env H={host} sh -c {command}"

ERRORS: dict[str, tuple[list[str | bytes], str]] = {
    "folder": (["-C", f"/no/{RED}", "true"], f"-C /no/{SHOWN}: no such directory"),
    "program": ([f"./{RED}"], f"./{SHOWN}: no such file"),
    "bytes": ([b"./\xe4"], "./\\xe4: no such file"),
    "option": ([f"--{RED}", "true"], f"--{SHOWN}: no such option"),
    "host": (["--hosts", f"a,{RED}", "true"], f"--hosts a,{SHOWN}: '{SHOWN}': expected a range"),
    "folder of a host": (
        ["--via", SHELL, "--hosts", "a", "-C", f"/no/{RED}", "true"],
        f"host a: /no/{SHOWN}: no such directory",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_control_characters_in_errors_are_escaped(jobs: Jobs, name: str) -> None:
    words, error = ERRORS[name]
    launcher = [sys.executable, "-m", "mcjax_launch", *words]
    ended = jobs.run(launcher=launcher)
    assert ended.status != 0
    assert ended.stderr.count("\n") == 1
    assert ended.report.startswith(error)


def client(folder: Path, script: str) -> list[str]:
    """A client of the user's own, which says what it says."""
    path = shell_script(folder / "client", script)
    return ["--via", f"{path} {{command}} {{host}}", "--hosts", "a"]


def test_control_characters_in_client_messages_are_escaped(jobs: Jobs, tmp_path: Path) -> None:
    words = r"printf '\033[31mno\033]0;title\007\302\233 way\n' >&2; exit 255"
    ended = jobs.run(*client(tmp_path, words), "true")
    assert ended.status == 255
    assert ended.stderr == f"mcjax-launch: host a: {SHOWN}no\\x1b]0;title\\x07\\x9b way\n"


def test_control_characters_in_exceptions_are_escaped(jobs: Jobs) -> None:
    """Shown as in every other line of the launcher's; the rank's own output is the rank's."""
    ended = jobs.run("-n", 1, sys.executable, "-c", "raise ValueError('\\x1b[31mred')")
    assert ended.status == 1
    assert f"rank 0 failed: ValueError: {SHOWN}red" in ended.report


def test_control_characters_of_a_lost_host_are_escaped(jobs: Jobs, tmp_path: Path) -> None:
    """Its client's last words come while the job runs, through the console."""
    words = r"""sh -c "$1"; printf '\033[31mlost\n' >&2; exit 255"""
    ended = jobs.run(*client(tmp_path, words), "bash", "-c", "kill -9 $PPID; sleep 60")
    assert ended.status == 255
    assert "host a: its agent exited unexpectedly: " in ended.stderr
    assert "[31mlost" in ended.stderr and RED not in ended.stderr


def test_flood_from_a_client_is_cut(jobs: Jobs, tmp_path: Path) -> None:
    """60 MB without a newline on stderr cost time, but neither memory nor a screen full of them."""
    flood = r"head -c 60000000 /dev/zero | tr '\0' x >&2"
    ended = jobs.run(*client(tmp_path, f'{flood}; exec sh -c "$1"'), "true")
    assert ended.status == 0
    assert len(ended.err) < 1000


def test_a_dry_run_prints_the_bytes_it_was_given(jobs: Jobs) -> None:
    launcher = [sys.executable, "-m", "mcjax_launch", "--dry-run", "echo", b"\xe4 \xc3\xa9"]
    for coding in ("utf-8:strict", "ascii:strict"):
        ended = jobs.run(launcher=launcher, env={"PYTHONIOENCODING": coding})
        assert (ended.status, ended.err) == (0, b"")
        assert b" echo '\xe4 \xc3\xa9'\n" in ended.out

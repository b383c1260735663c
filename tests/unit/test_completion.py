"""What may stand for a word of the command line; how shells ask is in process/test_completion."""

import os
from pathlib import Path

import pytest

from mcjax_launch.cli import completion
from mcjax_launch.cli.command import command

# The words before the one that is completed (behind the last space), and what is offered.
FILE, FOLDER = ["<file>"], ["<dir>"]
OFFERED = {
    "": FILE,
    "tr": FILE,
    "--color ": ["auto", "always", "never"],
    "--color a": ["auto", "always"],
    "--color=n": ["--color=never"],
    "--emit ": ["slurm", "jobset", "job"],
    "--github al": ["always"],
    "--env-style ": ["torch"],
    "--no-pre": ["--no-prefix"],
    "--quiet=": [],
    "--nothing=": [],
    "-n 2 --no-pre": ["--no-prefix"],
    "-n ": [],
    "-n 2 ": FILE,
    "--color never ": FILE,
    "--show ": [],
    "-n 3 --show ": ["0", "1", "2"],
    "-n 3 --show 0,": ["0,0", "0,1", "0,2"],
    "-n 12 --show=3,1": ["--show=3,1", "--show=3,10", "--show=3,11"],
    "-n 1 --stdin ": ["all", "none", "0"],
    "--via s": ["ssh", "srun"],
    "--preload ": ["jax"],
    "--coordinator ": ["ssh"],
    "-C ": FOLDER,
    "--log-dir=lo": ["<--log-dir=dir>"],
    "--report ": FILE,
    "-x SOME_": ["SOME_NAME"],
    "-x SOME_NAME=": [],
    "--timeout ": [],
    # A value that may be left out.
    "-n 2 --pdb ": ["all", "none", "0", "1"],
    "-n 2 --pdb 1 ": FILE,
    "--pdb tr": FILE,
    "--pdb --no-pre": ["--no-prefix"],
    "--pdb train.py --no-pre": FILE,
    # The program's own.
    "train.py ": FILE,
    "train.py --ho": FILE,
    "train.py --color ": FILE,
    "-n 2 train.py -n": FILE,
    "--no-prefix -- ": FILE,
    "-- --ho": FILE,
    "-n 2 -- train.py --emit ": FILE,
    "bash -c ": FILE,
    # Modules.
    "-m ": ["package", "train"],
    "-m tr": ["train"],
    "-m package.": ["package.part"],
    "-m package.part ": FILE,
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    for name in ("train.py", "not-one.py", "package/__init__.py", "package/part.py", "hosts.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("MCJAX")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SOME_NAME", "1")


def offered(line: str) -> list[str]:
    *words, word = line.split(" ")
    found = completion.completions(command, words, word)
    for item in found:
        assert item.type == "plain" or item.value.endswith(word.rpartition("=")[2])
    return [
        item.value if item.type == "plain"
        else f"<{item.value.partition('=')[0]}={item.type}>" if "=" in item.value
        else f"<{item.type}>"
        for item in found
    ]  # fmt: skip


@pytest.mark.parametrize("line", OFFERED)
def test_what_is_offered(line: str) -> None:
    assert offered(line) == OFFERED[line]


def test_all_options_with_their_help() -> None:
    found = {item.value: item.help for item in completion.completions(command, [], "--")}
    names = {max(param.opts, key=len) for param in command.params if param.name != "program"}
    assert set(found) >= names
    assert all(found.values())


def test_an_option_that_is_given_is_not_offered_again_unless_it_may_be() -> None:
    assert "--quiet" not in offered("--quiet --q")
    assert "--env" in offered("--env A --en")


def test_hosts(tmp_path: Path) -> None:
    assert offered("--hosts ") == FILE
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "config").write_text(
        "Host gpu1 gpu2 *.lan\n  HostName 10.0.0.1\nhost  big !other\n# Host not\nMatch host x\n"
    )
    (tmp_path / "home" / ".ssh" / "known_hosts").write_text(
        "# comment\n|1|abc=|def= ssh-rsa AAAA\ngpu3,10.0.0.3 ssh-rsa AAAA\n[far.org]:2222 ssh-rsa A\n"
        "@cert-authority *.lan ssh-rsa A\n@revoked old ssh-rsa A\n\n\xff\n"
    )
    assert completion.known_hosts() == [
        "10.0.0.3", "big", "far.org", "gpu1", "gpu2", "gpu3", "old", "\xff",
    ]  # fmt: skip
    assert offered("--hosts g") == ["gpu1", "gpu2", "gpu3"]
    assert offered("--hosts gpu1,gpu") == ["gpu1,gpu1", "gpu1,gpu2", "gpu1,gpu3"]
    assert offered("--hosts=b") == ["--hosts=big"]
    assert {"hosts.txt", "gpu1"} <= set(offered("--hosts "))
    assert offered("--hosts ho") == FILE
    assert offered("--hosts ./") == FILE


def test_words_as_bash_has_them() -> None:
    """It takes `=` and `:` for words."""
    for typed, words in {
        ("--hosts", "=", "fi"): ["--hosts=fi"],
        ("--hosts", "="): ["--hosts="],
        ("-x", "A", "=", "b", ":", "c", "--color", ""): ["-x", "A=b:c", "--color", ""],
        ("--wrap", "0", ":", "gdb", "t"): ["--wrap", "0:gdb", "t"],
        ("--hosts", "=", ""): ["--hosts=", ""],
        ("",): [""],
    }.items():
        assert completion._joined(typed) == words

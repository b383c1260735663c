"""What may stand for a word of the command line; how shells ask is in process/test_completion."""

from pathlib import Path

import pytest
from click.shell_completion import BashComplete, CompletionItem

from mcjax_launch.cli import completion
from mcjax_launch.cli.command import command

# The words before the one that is completed (behind the last space), and what is offered.
FILE, FOLDER = ["<file>"], ["<dir>"]
OFFERED = {
    "": FILE,
    "--color ": ["auto", "always", "never"],
    "--color a": ["auto", "always"],
    "--color=n": ["never"],
    "--emit ": ["slurm", "pbs", "lsf", "sge", "flux", "jobset", "job"],
    "--no-pre": ["--no-prefix"],
    "-n ": [],
    "-n 2 ": FILE,
    "--color never ": FILE,
    "-C ": FOLDER,
    "--log-dir=lo": FOLDER,
    "--report ": FILE,
    "--stdin ": ["all", "none", "0"],
    "--pdb=a": ["all"],
    # A value that may be left out.
    "-n 2 --pdb 1 ": FILE,
    "--pdb --no-pre": ["--no-prefix"],
    "--pdb train.py --no-pre": FILE,
    # The program's own.
    "train.py --ho": FILE,
    "-n 2 train.py -n": FILE,
    "--no-prefix -- ": FILE,
    "-- --ho": FILE,
    "-n 2 -- train.py --emit ": FILE,
}


def items(line: str) -> list[CompletionItem[str]]:
    *words, word = line.split(" ")
    bash = completion._up_to_program(BashComplete)(command, {}, "mcjax-launch", "_")
    return bash.get_completions(words, word)


def offered(line: str) -> list[str]:
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in items(line)]


def test_completion_offers_what_fits() -> None:
    assert {line: offered(line) for line in OFFERED} == OFFERED


def test_all_options_are_offered_with_help() -> None:
    found = {item.value: item.help for item in items("--")}
    names = {max(param.opts, key=len) for param in command.params if param.name != "program"}
    assert set(found) >= names - {"-h"}
    assert all(found.values())


def test_given_option_is_offered_again_only_if_repeatable() -> None:
    assert "--quiet" not in offered("--quiet --q")
    assert "--env" in offered("--env A --en")


def test_known_hosts_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert offered("--hosts ") == FILE
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        "Host gpu1 gpu2 *.lan\n  HostName 10.0.0.1\nhost  big !other\n# Host not\nMatch host x\n"
    )
    (tmp_path / ".ssh" / "known_hosts").write_text(
        "# comment\n|1|abc=|def= ssh-rsa AAAA\ngpu3,10.0.0.3 ssh-rsa AAAA\n[far.org]:2222 ssh-rsa A\n"
        "@cert-authority *.lan ssh-rsa A\n@revoked old ssh-rsa A\n\n\xff\n"
    )
    assert completion.known_hosts() == [
        "10.0.0.3", "big", "far.org", "gpu1", "gpu2", "gpu3", "old", "\xff",
    ]  # fmt: skip
    assert offered("--hosts g") == ["gpu1", "gpu2", "gpu3"]
    assert offered("--hosts gpu1,gpu") == ["gpu1,gpu1", "gpu1,gpu2", "gpu1,gpu3"]
    assert offered("--hosts=b") == ["big"]
    assert offered("--hosts ./") == FILE

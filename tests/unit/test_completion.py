"""What may stand for a word of the command line; how shells ask is in process/test_completion."""

from click.shell_completion import BashComplete, CompletionItem, FishComplete

from mcjax_launch.cli import completion
from mcjax_launch.cli.command import command

# The words before the one that is completed (behind the last space), and what is offered.
FILE, FOLDER = ["<file>"], ["<dir>"]
OFFERED = {
    "": FILE,
    "--color ": ["auto", "always", "never"],
    "--color a": ["auto", "always"],
    "--color=n": ["never"],
    "--emit ": ["slurm", "jobset", "job"],
    "--no-pre": ["--no-prefix"],
    "-n ": [],
    "-n 2 ": FILE,
    "--color never ": FILE,
    "-C ": FOLDER,
    "--log-dir=lo": FOLDER,
    "--report ": FILE,
    "--pdb=a": ["all"],
    # A value that may be left out.
    "-n 2 --pdb 1 ": FILE,
    "--collapse ": ["always", "auto", "never"],
    "--collapse tr": FILE,
    "--help de": ["devices", "debugging", "detached"],
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
    bash = completion._make_completer_class(BashComplete)(command, {}, "mcjax-launch", "_")
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


def test_fish_shows_descriptions_with_commas() -> None:
    fish = completion._make_completer_class(FishComplete)(command, {}, "mcjax-launch", "_")
    assert 'string split --max 1 "," $completion' in fish.source()

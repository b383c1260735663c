"""--help against click's own list of options."""

import re
from collections import Counter
from pathlib import Path

import click
import pytest

from mcjax_launch.cli.command import command, main
from mcjax_launch.cli.help import WHICH
from mcjax_launch.cli.options import GROUPS
from mcjax_launch.cli.words import get_group_key
from mcjax_launch.options.options import Options

# The same groups, in the same order, as docs/reference.md.
TITLES = (
    "Job",
    "Devices",
    "Hosts",
    "Output",
    "Limits and restarts",
    "Debugging",
    "Detached jobs",
    "Batch scripts and manifests",
    "Other",
)


@pytest.fixture(params=[60, 80, 200])
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """--help all, on terminals of several widths."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    return command.get_help(context("all"))


def context(which: str = "common") -> click.Context:
    made = click.Context(command, info_name="mcjax-launch", **command.context_settings)
    made.meta[WHICH] = which
    return made


def sections(shown: str) -> dict[str, str]:
    """What --help says under each heading."""
    _, *parts = re.split(r"^(\S.*):\n", shown, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def entries(section: str) -> dict[str, str]:
    """The help text of each option, by its names and its metavar, in one line."""
    starts = re.split(r"^  (?=-)", section, flags=re.MULTILINE)[1:]
    words = [re.split(r"\s{2,}", start.strip(), maxsplit=1) for start in starts]
    return {names: " ".join(text.split()) for names, text in words}


def unwrapped(text: str) -> str:
    """Without blanks: click also breaks lines after hyphens."""
    return "".join(text.split())


def click_options() -> list[click.Option]:
    return [p for p in command.get_params(context()) if isinstance(p, click.Option)]


def test_help_has_all_groups(shown: str) -> None:
    assert tuple(sections(shown)) == (*TITLES, "Examples")
    assert tuple(GROUPS) == TITLES


def test_every_option_is_in_its_group_once_with_all_its_names(shown: str) -> None:
    groups: dict[click.Option, str] = {
        option: title for title, options in GROUPS.items() for option in options
    }
    listed = Counter(
        (title, tuple(name for name in re.findall(r"(?:^|, )(-[\w-]+)", names)))
        for title, section in sections(shown).items()
        for names in entries(section)
    )
    assert listed == Counter(
        (groups.get(option, "Other"), tuple(option.opts)) for option in click_options()
    )
    assert set(listed.values()) == {1}


def test_every_option_has_its_help_and_its_default(shown: str) -> None:
    texts = {
        names.split(" ")[0].rstrip(","): text
        for section in sections(shown).values()
        for names, text in entries(section).items()
    }
    for option in click_options():
        text = unwrapped(texts[option.opts[0]])
        assert option.help
        assert option.is_flag or option.metavar  # instead of click's own, such as TEXT
        assert text.startswith(unwrapped(option.help))
        default = option.get_default(context())
        if not option.is_flag and isinstance(default, (int, str)):
            assert text.endswith(unwrapped(f"[default: {default}]"))


def test_help_fits_the_terminal(shown: str) -> None:
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.endswith(" ")] == []


def test_every_placeholder_is_named(shown: str) -> None:
    from mcjax_launch.job import placeholders

    for name in placeholders.NAMES:
        assert f"{{{name}}}" in shown


def test_options_that_no_variable_sets_are_named(shown: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    unset = [option.long for option in Options.declared.values() if not option.in_environ]
    for text in (shown, page.replace("`", "")):
        sentence = re.search(r"Every option but (.*?) can", " ".join(text.split()))
        assert sentence and re.findall(r"--[a-z-]+", sentence[1]) == unset


def test_examples_are_at_the_end(shown: str) -> None:
    *_, last = shown.rstrip().splitlines()
    assert last.strip() == [*Options.examples.values()][-1][1]
    for purpose, line in Options.examples.values():
        assert f"\n  # {purpose}\n  {line}\n" in f"{shown}\n"


def test_common_options_are_listed_first() -> None:
    shown = command.get_help(context())
    listed = [names for section in sections(shown).values() for names in entries(section)]
    assert len(listed) == 28 + 3  # and those of help
    assert len(shown.splitlines()) <= 124
    *_, last = shown.rstrip().split("\n\n")
    for title in Options.examples:
        assert get_group_key(title) in last


@pytest.mark.parametrize("title", Options.examples)
def test_help_of_a_group_shows_its_options_and_an_example(title: str) -> None:
    """All of them, and an example."""
    shown = command.get_help(context(get_group_key(title)))
    assert list(sections(shown)) == [title, "Example"]
    assert len(entries(sections(shown)[title])) == len(GROUPS[title])
    assert shown.rstrip().endswith(
        "\n  ".join(["", "# " + Options.examples[title][0], Options.examples[title][1]])
    )


@pytest.mark.parametrize("line", [line for _, line in Options.examples.values()])
def test_examples_can_be_copied(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "hosts.txt").write_text("a\nb slots=4\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").touch()
    name, *words = line.split()
    assert name == "mcjax-launch"
    assert main(["--dry-run", *words]) == 0
    out, err = capfd.readouterr()
    assert ("train" in out, err) == (True, "")
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "hosts.txt", "package"}


def test_short_and_full_help_name_known_options_only(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    out, err = capfd.readouterr()
    assert (out.strip(), err) == (command.get_help(context()).strip(), "")
    assert main(["--help", "train.py"]) == 0
    assert capfd.readouterr() == (out, "")
    assert main(["--help", "all"]) == 0
    assert capfd.readouterr().out.strip() == command.get_help(context("all")).strip()
    assert main(["--help", "Hosts"]) == 0
    assert capfd.readouterr().out.strip() == command.get_help(context("hosts")).strip()
    assert main(["--help", "host"]) == 2
    assert (
        "--help host: no such option or group of options; there are job, " in capfd.readouterr().err
    )
    assert main(["-h"]) == 0
    out, err = capfd.readouterr()
    assert (len(out.splitlines()), max(map(len, out.splitlines())) <= 80, err) == (16, True, "")
    known = {name for option in click_options() for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", out)) <= known


FEATURES = ("watch", "compile-cache", "detach", "attach", "jobs", "stop", "wait", "events")


@pytest.mark.parametrize("words", [["-h"], ["--help"]])
def test_short_and_common_help_name_each_feature(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    named = set(re.findall(r"--([a-z-]+)", capfd.readouterr().out))
    assert set(FEATURES) <= named


def test_help_explains_every_option_by_its_names(capfd: pytest.CaptureFixture[str]) -> None:
    keys = {get_group_key(title) for title in GROUPS}
    for option in click_options():
        long = max(option.opts, key=len)
        bare = long.lstrip("-")
        words = {*option.opts, bare, bare.replace("-", "_")}
        for word in words - keys:
            assert main(["--help", word]) == 0
            out, err = capfd.readouterr()
            assert (len(sections(out)), err) == (1, ""), word
            assert unwrapped(option.help or "") in unwrapped(out)
            assert long == "-h" or f"docs/reference.md#{long}\n" in out
    assert main(["--help", "--watch", "train.py"]) == 0
    out, _ = capfd.readouterr()
    assert "It cannot be combined with --emit, --dry-run." in out
    assert main(["--help", "--bogus"]) == 2

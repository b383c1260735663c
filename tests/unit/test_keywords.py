"""The keywords of the API against click's options, and the Options that both become."""

import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import mcjax_launch
from mcjax_launch.cli.command import command
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import make_command_line
from mcjax_launch.options.option import Option
from mcjax_launch.options.options import Options
from mcjax_launch.python import keywords as kw
from mcjax_launch.python.keywords import Keywords
from scripts import ROOT

FUNCTIONS = (
    mcjax_launch.launch,
    mcjax_launch.start,
    mcjax_launch.run,
    mcjax_launch.session,
)


@pytest.mark.parametrize("option", Options.declared.values(), ids=lambda option: option.name)
def test_choices_and_their_default_have_the_annotated_type(option: Option) -> None:
    allowed = get_args(eval(option.type, vars(typing))) or (bool,)
    literals = {word for part in allowed for word in (get_args(part) or (part,))}
    if option.kind and option.kind.choices and str not in allowed:
        assert set(option.kind.choices) == {word for word in literals if isinstance(word, str)}
    if isinstance(option.default, str):
        assert option.default in literals


def test_keyword_defaults_equal_clicks() -> None:
    context = command.make_context("mcjax-launch", ["true"])
    assert Options(**context.params) == Options(program=("true",))


# Keywords, and the command line that says the same.
SAME: dict[str, dict[str, Any]] = {
    "-n 4 -d 2 --timeout 5m p": {"processes": 4, "cpu_devices": 2, "timeout": 300},
    "-n 4 --timeout 1h30m --grace 2 p": {"processes": "4", "timeout": "1h30m", "grace": "2"},
    "-x A=1 -x B= p": {"env": {"A": 1, "B": ""}},
    "--sync a --sync b p": {"sync": ["a", Path("b")]},
    "--sync a --wrap env p": {"sync": Path("a"), "wrap": "env"},
    "--hosts h.txt --show 0,2-3 p": {"hosts": Path("h.txt"), "show": [0, 2, 3]},
    "--show 0-1 -m p": {"show": "0-1", "module": True},
    "--preload jax,flax p": {"preload": ["jax", "flax"]},
    "--preload jax p": {"preload": "jax"},
    "--color never --no-hook p": {"color": "never", "no_hook": True, "quiet": False},
    "--profile x@90s p": {"profile": Path("x@90s")},
    "p": {"processes": None, "hosts": None, "verbose": False},
}


@pytest.mark.parametrize("words", SAME)
def test_keywords_and_options_agree(words: str) -> None:
    context = command.make_context("mcjax-launch", words.split())
    options = kw.make_options(["p"], SAME[words])
    assert options == Options(**context.params)
    written = make_command_line(options, kw.list_option_names(SAME[words]))
    again = command.make_context("mcjax-launch", written)
    assert Options(**again.params) == options


def test_hosts_may_be_the_lines_of_a_file() -> None:
    assert kw.make_options(["p"], {"hosts": ["a slots=2", "b"]}).hosts == ("a slots=2", "b")
    with pytest.raises(LaunchError, match="hosts: standard input is the program's own"):
        kw.make_options(["p"], {"hosts": "-"})


@pytest.mark.parametrize("name", ["rehearse", "black_box"])
def test_removed_option_is_refused_with_advice(name: str) -> None:
    with pytest.raises(TypeError, match=f"argument '{name}', which was removed: (use|start) "):
        kw.make_options(["p"], {name: "x"})


def test_removed_value_is_refused_with_advice() -> None:
    with pytest.raises(LaunchError, match=r"via: 'blaunch' was removed: .*--num-hosts"):
        kw.make_options(["p"], {"via": "blaunch"})


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_help_shows_all_keywords(function: Callable[..., Any]) -> None:
    shown = inspect.signature(function).parameters
    assert set(Keywords.__annotations__) <= set(shown)
    defaults = {name: shown[name].default for name in Keywords.__annotations__}
    runs = function in (mcjax_launch.run, mcjax_launch.session)
    changed = {"processes": 4, "echo": True} if runs else {"echo": False}
    for name, default in defaults.items():
        if name in changed or name in kw.NO_OPTIONS:
            assert default == changed.get(name)
        else:
            of_option = getattr(Options, kw.DECLARED[name].name)
            assert default == (None if of_option == () else of_option), name


def test_all_public_names_exist_and_are_documented() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    for name in set(mcjax_launch.__all__) - {"__version__"}:
        assert name in page, name
        assert getattr(mcjax_launch, name) is not None
        assert name in dir(mcjax_launch)
    with pytest.raises(AttributeError, match="has no attribute 'lunch'"):
        mcjax_launch.lunch  # noqa: B018

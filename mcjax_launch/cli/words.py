"""Division of a command line's words into options and PROGRAM; click options for that."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import Options


class ClickOption(click.Option):
    """A click option whose help text is shown unchanged.

    Args:
        names: names of the option, such as `-n`.
        help: text in --help.
        shown: default as shown in --help; "" to show none.
        follows: returns whether a word after the option is its optional value; None to decide by
            the option's type.
        omitted: value of an optional value that is left out.
        settings: further arguments of click.Option.

    """

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002
        shown: str = "",
        follows: Callable[[str], bool] | None = None,
        omitted: str = "all",
        **settings: Any,
    ) -> None:
        super().__init__(list(names), **settings)
        self.follows = follows
        self.omitted = omitted
        self.help = help  # set here, as click would import `inspect` to clean it
        self.shown = shown

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not self.shown:
            return record
        return record[0], f"{self.help}  [default: {self.shown}]"


_PYTHON_FILE = ".py"
_A_PROGRAM = "train.py"  # taken by every option that may take PROGRAM for its value
#: Words for parts of the help: what --help shows by itself, and all of it.
COMMON, ALL = "common", "all"
#: The option that prints it.
HELP = "--help"
_ONCE = frozenset(option.long for option in Options.declared.values() if option.once)


def divide_words(
    words: Sequence[str], params: Sequence[click.Parameter]
) -> tuple[list[str], list[str]]:
    """Divide a command line into the options' words and PROGRAM's words.

    Options without their optional value get a default, as click cannot distinguish it from PROGRAM.
    """
    options = {name: param for param in params for name in param.opts if name.startswith("-")}
    done: list[str] = []
    ahead = list(words)
    while ahead and ahead[0].startswith("-") and ahead[0] not in ("-", "--"):
        word = ahead.pop(0)
        option = options.get(word)
        if isinstance(option, click.Option) and not option.is_flag:
            if may_be_left_out(option) and not (ahead and fits(option, ahead[0])):
                word = f"{word}={_get_omitted_value(option)}"
            elif ahead:
                done.append(word)
                word = ahead.pop(0)
        done.append(word)
    return done, ahead


def check_once(words: Sequence[str], params: Sequence[click.Parameter]) -> None:
    """Refuse an option with `once` that is given twice with different values.

    Args:
        words: words of the command line.
        params: click's parameters of the command.

    Raises:
        LaunchError: there is such an option.

    """
    own, _ = divide_words(words, params)
    first: dict[str, str] = {}
    for word, after in zip(own, [*own[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in _ONCE:
            value = value if equals else after
            if first.setdefault(name, value) != value:
                raise LaunchError(f"{name} {first[name]} {name} {value}: give {name} only once")


def explain_swallowed_program(words: Sequence[str], params: Sequence[click.Parameter]) -> str:
    """Return an error that names the option whose value was likely meant as PROGRAM; "" if none.

    Args:
        words: words of a command line without PROGRAM.
        params: click's parameters of the command.

    """
    options = {name: param for param in params for name in param.opts}
    own, _ = divide_words(words, params)
    found = ""
    for number, (word, value) in enumerate(itertools.pairwise(own), 2):
        option = options.get(word)
        if not isinstance(option, click.Option) or option.is_flag or may_be_left_out(option):
            continue
        is_last = number == len(own) and fits(option, _A_PROGRAM)
        if is_last or value.endswith(_PYTHON_FILE):
            found = (
                f"{word} took {value} as its {_get_placeholder(option)}: there is no PROGRAM left"
            )
    return found


def _get_placeholder(option: click.Option) -> str:
    """Return the word for an option's value: FILE for `FILE|LIST|-`, DIR for `DIR[:SIZE]`."""
    found = re.search("[A-Z]+", re.sub(r"\[[^][]*\]", "", str(option.metavar)))
    return found[0] if found else "value"


def may_be_left_out(option: click.Option) -> bool:
    """Return whether the option's value is optional: its metavar is in brackets."""
    metavar = str(option.metavar)
    return metavar.startswith("[") and metavar.endswith("]")


def _get_omitted_value(option: click.Option) -> str:
    """Return the value of an option whose optional value is left out."""
    if isinstance(option.type, click.Choice):
        return str(option.type.choices[0])
    return option.omitted if isinstance(option, ClickOption) else ALL


def fits(option: click.Option, word: str) -> bool:
    """Return whether an option accepts a word as its value."""
    if isinstance(option, ClickOption) and option.follows is not None:
        return option.follows(word)
    try:
        option.type.convert(word, None, None)
    except click.UsageError:
        return False
    return True


def get_group_key(title: str) -> str:
    """Return the word for a group in `--help GROUP`: the first word of its title, lower case."""
    return title.partition(" ")[0].lower()

"""Click's options, in the groups of --help, made of those that `options/options.py` declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from mcjax_launch import __version__
from mcjax_launch.errors import LaunchError
from mcjax_launch.options import kinds
from mcjax_launch.options.kinds import Kind
from mcjax_launch.options.option import Option
from mcjax_launch.options.options import Options


class Typed(click.ParamType):  # type: ignore[type-arg]
    """A kind of value, as click wants it."""

    name = "value"

    def __init__(self, kind: Kind, separator: str | None = None) -> None:
        self.kind = kind
        self.separator = separator

    def split_envvar_value(self, rv: str) -> list[str]:
        return rv.split(self.separator)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> Any:
        if not self.kind.offers:
            return super().shell_complete(ctx, param, incomplete)
        from mcjax_launch.cli import completion

        return getattr(completion, self.kind.offers)(incomplete)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self.kind.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ClickOption(click.Option):
    """An option with its help as it is written.

    Args:
        names: as the user writes it.
        help: what --help says of it.
        shown: what --help shows as its default; empty to show none.
        settings: see click.Option.

    """

    def __init__(self, *names: str, help: str, shown: str = "", **settings: Any) -> None:  # noqa: A002
        super().__init__(list(names), **settings)
        self.help = help  # not by way of click, which would import `inspect` to clean it
        self.shown = shown

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or not self.shown:
            return record
        return record[0], f"{self.help}  [default: {self.shown}]"


#: What --help shows alone, and all of it.
COMMON, ALL = "common", "all"
_ONCE = frozenset(option.long for option in Options.declared.values() if option.once)


def with_values(words: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """The words of a command line, with `all` where a value that may be left out has been.

    Click cannot tell PROGRAM from such a value.
    """
    own, rest = divided(words, params)
    return own + rest


def divided(words: Sequence[str], params: Sequence[click.Parameter]) -> tuple[list[str], list[str]]:
    """The launcher's own words, as `with_values` has them, and the rest: from PROGRAM on."""
    options = {name: param for param in params for name in param.opts if name.startswith("-")}
    done: list[str] = []
    ahead = list(words)
    while ahead and ahead[0].startswith("-") and ahead[0] not in ("-", "--"):
        word = ahead.pop(0)
        option = options.get(word)
        if isinstance(option, click.Option) and not option.is_flag:
            if may_be_left_out(option) and not (ahead and fits(option, ahead[0])):
                word = f"{word}={_left_out(option)}"
            elif ahead:
                done.append(word)
                word = ahead.pop(0)
        done.append(word)
    return done, ahead


def check_once(words: Sequence[str], params: Sequence[click.Parameter]) -> None:
    """Refuse two values of an option that takes one, if one of them would be lost.

    Args:
        words: of the command line.
        params: of the command.

    Raises:
        LaunchError: there are two.

    """
    own, _ = divided(words, params)
    first: dict[str, str] = {}
    for word, after in zip(own, [*own[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in _ONCE:
            value = value if equals else after
            if first.setdefault(name, value) != value:
                raise LaunchError(f"{name} {first[name]} {name} {value}: give {name} only once")


def may_be_left_out(option: click.Option) -> bool:
    """Whether its value may be: where all of its metavar is in brackets."""
    metavar = str(option.metavar)
    return metavar.startswith("[") and metavar.endswith("]")


def _left_out(option: click.Option) -> str:
    """The value that stands for none."""
    return str(option.type.choices[0]) if isinstance(option.type, click.Choice) else ALL


def fits(option: click.Option, word: str) -> bool:
    """Whether the option would take this value."""
    if isinstance(option.type, Typed) and option.type.kind.follows is not None:
        return option.type.kind.follows(word)
    try:
        option.type.convert(word, None, None)
    except click.UsageError:
        return False
    return True


def _click_option(option: Option) -> ClickOption:
    if option.kind is None:
        return ClickOption(
            *option.names, help=option.help, is_flag=True, allow_from_autoenv=option.in_environ
        )
    choices, own = option.kind.choices, f"MCJAX_{option.name.upper()}"
    return ClickOption(
        *option.names,
        help=option.help,
        shown=option.shown,
        type=click.Choice(choices) if choices else Typed(option.kind, option.separator),
        metavar=option.metavar,
        multiple=option.repeats,
        envvar=[own, option.variable] if option.variable else None,
        allow_from_autoenv=option.in_environ,
        default=None if option.repeats else option.default,
    )


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"mcjax-launch {__version__}")
        context.exit()


def _show_help(context: click.Context, _: click.Parameter, which: str | None) -> None:
    if which and not context.resilient_parsing:
        from mcjax_launch.cli.help import WHICH, WORDS

        words = context.meta.get(WORDS, ())
        _check_group(words[words.index("--help") + 1 :] if "--help" in words else ())
        context.meta[WHICH] = which
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _check_group(after: Sequence[str]) -> None:
    """Refuse a word after --help that is meant for a group, and is none."""
    keys = [group_key(title) for title in GROUPS]
    if after and after[0].isalpha() and after[0].lower() not in (*keys, COMMON, ALL):
        there_are = ", ".join((*keys, ALL))
        raise click.UsageError(
            f"--help {after[0]}: no such group of options; there are {there_are}"
        )


def _show_examples(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from mcjax_launch.cli.help import SHORT

        click.echo(SHORT)
        context.exit()


def _action(*names: str, callback: Any, help: str, **settings: Any) -> ClickOption:  # noqa: A002
    """Return an option that does something instead of a run; no variable sets it."""
    settings = {"is_flag": True, **settings, "is_eager": True, "expose_value": False}
    return ClickOption(*names, help=help, callback=callback, allow_from_autoenv=False, **settings)


def group_key(title: str) -> str:
    """Return the word for a group of options in `--help GROUP`."""
    return title.partition(" ")[0].lower()


GROUPS: dict[str, list[ClickOption]] = {}
for _option in Options.declared.values():
    GROUPS.setdefault(_option.group, []).append(_click_option(_option))
GROUPS["Other"] = [
    _action("--version", callback=_show_version, help="Show the version and exit."),
    # click's own would be made with a look at the user's language, at every start.
    _action("-h", callback=_show_examples, help="Show some examples and exit."),
    _action(
        "--help",
        callback=_show_help,
        is_flag=False,
        type=click.Choice([COMMON, *map(group_key, GROUPS), ALL], case_sensitive=False),
        metavar="[GROUP]",
        help="Show the common options, those of a group, or all, and exit.",
    ),
]

PROGRAM = click.Argument(["program"], nargs=-1, type=Typed(kinds.FILE), metavar="PROGRAM [ARGS]...")

"""Click options in the groups of --help, made from the declarations in `options/options.py`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import click

from mcjax_launch.cli.words import ALL, COMMON, HELP, ClickOption, get_group_key
from mcjax_launch.options import kinds
from mcjax_launch.options.kinds import Kind
from mcjax_launch.options.option import Option
from mcjax_launch.options.options import Options
from mcjax_launch.options.removed import find_replacement
from mcjax_launch.wire.version import __version__


class Typed(click.ParamType):  # type: ignore[type-arg]
    """A click type that reads and completes values of a Kind; `separator` splits variables."""

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

        return completion.complete_value(self.kind.offers, incomplete)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self.kind.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Chosen(click.Choice):  # type: ignore[type-arg]
    """Type of an option that takes one of a few values, and names values that were removed."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        name, word = "" if param is None else param.name, str(value).partition(":")[0]
        if removed := find_replacement(f"{name}={word}"):
            self.fail(f"{value!r} {removed}", param, ctx)
        return super().convert(value, param, ctx)


def _make_click_option(option: Option) -> ClickOption:
    if option.kind is None:
        return ClickOption(
            *option.names, help=option.help, is_flag=True, allow_from_autoenv=option.in_environ
        )
    choices, own = option.kind.choices, f"MCJAX_{option.name.upper()}"
    return ClickOption(
        *option.names,
        help=option.help,
        shown=option.shown,
        follows=option.kind.follows,
        omitted=option.kind.omitted,
        type=Chosen(choices) if choices else Typed(option.kind, option.separator),
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
        after = words[words.index(HELP) + 1 :] if HELP in words else ()
        context.meta[WHICH] = _find_option(after) or which
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _find_option(after: Sequence[str]) -> str:
    """Return the long name of the option that is named after --help, as `--watch` or `watch`.

    "" if the word names a group, or cannot be meant as a name.

    Raises:
        UsageError: the word is the name of neither.

    """
    word = after[0] if after else ""
    name = word.lstrip("-").partition("=")[0].replace("_", "-")
    keys = [get_group_key(title) for title in GROUPS]
    if word.lower() in ("", *keys, COMMON, ALL):
        return ""
    for option in itertools.chain.from_iterable(GROUPS.values()):
        if name in {other.lstrip("-") for other in option.opts}:
            return max(option.opts, key=len)
    if not word.startswith("-") and not name.replace("-", "").isalpha():
        return ""  # PROGRAM
    there_are = ", ".join((*keys, ALL))
    raise click.UsageError(
        f"--help {word}: no such option or group of options; there are {there_are}"
    )


def _show_examples(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from mcjax_launch.cli.help import format_short

        click.echo(format_short())
        context.exit()


def _make_action(*names: str, callback: Any, help: str, **settings: Any) -> ClickOption:  # noqa: A002
    """Return an option such as --version, whose callback replaces a run; no variable sets it."""
    settings = {"is_flag": True, **settings, "is_eager": True, "expose_value": False}
    return ClickOption(*names, help=help, callback=callback, allow_from_autoenv=False, **settings)


GROUPS: dict[str, list[ClickOption]] = {}
for _option in Options.declared.values():
    GROUPS.setdefault(_option.group, []).append(_make_click_option(_option))
GROUPS["Other"] = [
    _make_action("--version", callback=_show_version, help="Show the version and exit."),
    # click's own would be made with a look at the user's language, at every start.
    _make_action("-h", callback=_show_examples, help="Show some examples and exit."),
    _make_action(
        HELP,
        callback=_show_help,
        is_flag=False,
        type=click.Choice([COMMON, *map(get_group_key, GROUPS), ALL], case_sensitive=False),
        metavar="[GROUP]",
        help="Show the common options, those of a group, one option, or all, and exit.",
    ),
]

PROGRAM = click.Argument(["program"], nargs=-1, type=Typed(kinds.FILE), metavar="PROGRAM [ARGS]...")

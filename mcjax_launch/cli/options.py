"""Click's options, in the groups of --help, made of those that `options/options.py` declares."""

from __future__ import annotations

from typing import Any

import click

from mcjax_launch import __version__
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


def _made(option: Option) -> ClickOption:
    if option.kind is None:
        return ClickOption(*option.names, help=option.help, is_flag=True)
    choices, own = option.kind.choices, f"MCJAX_{option.name.upper()}"
    return ClickOption(
        *option.names,
        help=option.help,
        shown=option.shown,
        type=click.Choice(choices) if choices else Typed(option.kind, option.separator),
        metavar=option.metavar,
        multiple=option.repeats,
        envvar=[own, option.variable] if option.variable else None,
        default=None if option.repeats else option.default,
    )


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"mcjax-launch {__version__}")
        context.exit()


def _show_help(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _action(*names: str, callback: Any, help: str) -> ClickOption:  # noqa: A002  click's word
    """An option that does something instead of a run."""
    settings: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
    return ClickOption(*names, help=help, callback=callback, **settings)


GROUPS: dict[str, list[ClickOption]] = {}
for _option in Options.declared.values():
    GROUPS.setdefault(_option.group, []).append(_made(_option))
GROUPS["Other"] = [
    _action("--version", callback=_show_version, help="Show the version and exit."),
    # click's own would be made with a look at the user's language, at every start.
    _action("-h", "--help", callback=_show_help, help="Show this message and exit."),
]

PROGRAM = click.Argument(["program"], nargs=-1, type=Typed(kinds.FILE), metavar="PROGRAM [ARGS]...")

"""Texts of `--help` (common options, or options of a group) and of `-h` (examples)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from mcjax_launch.cli.words import ALL, COMMON, HELP, divide_words, get_group_key
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options

# Groups whose examples --help shows.
_FIRST_EXAMPLES = ("Devices", "Hosts", "Batch scripts and manifests")
_COMMON = frozenset(name for name, option in Options.declared.items() if option.is_common)

_USAGE = """\
Usage: mcjax-launch [OPTIONS] PROGRAM [ARGS]...

Run PROGRAM (a *.py file, a module with -m, or any command) as one JAX job.

  mcjax-launch -n 4 -d 2 train.py           # 4 ranks here, 2 CPU devices each
  mcjax-launch -n 8 train.py                # 8 ranks here, on 8 GPUs one each
  mcjax-launch --hosts a,b train.py         # a rank on each host, over ssh
  mcjax-launch train.py                     # in an allocation: on its hosts
"""
_REMINDER = "--log-dir and --events keep output and events"

# Columns for an option's names; after longer names the text begins on a new line.
_NAMES = 30
_REFERENCE = "https://github.com/mcjax/mcjax-launch/blob/main/docs/reference.md"
#: Keys of a context's meta: the words of its command line, and what to show help on: the key of a
#: group, or an option's long name.
WORDS = "mcjax_launch.words"
WHICH = "mcjax_launch.which"


def format_short() -> str:
    """Return the text of -h."""
    import textwrap  # few runs ask for it

    examples = "".join(f"  {line}\n" for line in declared.list_all("EXAMPLE"))
    reminders = "; ".join((_REMINDER, *declared.list_all("REMINDER")))
    rest = textwrap.fill(f"{reminders}. --help lists the common options.", 79)
    return f"{_USAGE}{examples}\n{rest}"


class GroupedCommand(click.Command):
    """A click command whose help shows the options in groups.

    Args:
        groups: options by the heading of their group.

    """

    def __init__(
        self, *args: Any, groups: Mapping[str, Sequence[click.Option]], **settings: Any
    ) -> None:
        super().__init__(*args, **{**settings, "help": _describe(settings["help"] or "")})
        self._groups = groups

    def make_parser(self, ctx: click.Context) -> Any:
        """Return click's parser, changed so that it finds short options such as `-n` directly.

        Click would first search for a long option of that name, and then for similar names, which
        takes longer than all other parsing.
        """
        parser = super().make_parser(ctx)
        short, long = (vars(parser).get(name) for name in ("_short_opt", "_long_opt"))
        if short and long:
            long.update(short)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line as click does, and store its words in the context."""
        ctx.meta[WORDS] = tuple(args)
        own, rest = divide_words(args, self.params)
        if f"{HELP}={COMMON}" in own:  # what follows is a name to explain, also of an option
            own, rest = own[: own.index(f"{HELP}={COMMON}") + 1], []
        return super().parse_args(ctx, own + rest)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description of the command, except in the help of a group or an option."""
        if _get_group(ctx) in (ALL, COMMON):
            super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the requested groups, one section for each group."""
        for title, options in self._select_options(ctx):
            rows = [record for option in options if (record := option.get_help_record(ctx))]
            with formatter.section(title):
                # One width for all, so that the columns of the groups are in line.
                formatter.write_dl([(names.ljust(_NAMES), text) for names, text in rows], _NAMES)

    def _select_options(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
        which = _get_group(ctx)
        for title, options in self._groups.items():
            shown = list(options)
            if which == COMMON and title in Options.examples:
                shown = [option for option in options if option.name in _COMMON]
            elif which.startswith("-"):
                shown = [option for option in options if which in option.opts]
            elif which not in (ALL, COMMON, get_group_key(title)):
                continue
            if shown:
                yield title, shown

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, and a line on `--help GROUP`."""
        which = _get_group(ctx)
        if which.startswith("-"):
            formatter.write_paragraph()
            for line in _describe_limits(which):
                formatter.write_text(line)
            if which != "-h":
                formatter.write(f"{_REFERENCE}#{which}\n")  # never wrapped: to be copied
            return
        titles = [title for title in Options.examples if which in (ALL, get_group_key(title))]
        titles = titles or [title for title in _FIRST_EXAMPLES if title in Options.examples]
        with formatter.section("Examples" if len(titles) > 1 else "Example"):
            for number, title in enumerate(titles):
                purpose, command = Options.examples[title]
                if number:
                    formatter.write_paragraph()
                formatter.write(f"  # {purpose}\n  {command}\n")  # never wrapped: to be copied
        if which == COMMON:
            groups = ", ".join(get_group_key(title) for title in Options.examples)
            formatter.write_paragraph()
            formatter.write_text(f"More: --help GROUP ({groups}), --help OPTION, or --help all.")


def _describe(text: str) -> str:
    """Return the command's description, with the options that no variable sets."""
    unset = [option.long for option in Options.declared.values() if not option.in_environ]
    but = f" but {', '.join(unset[:-1])} and {unset[-1]}" if unset else ""
    return re.sub(r"EVERY\s+OPTION", f"Every option{but}", text)


def _describe_limits(name: str) -> Iterator[str]:
    """Yield lines on the options that an option, by its long name, needs or excludes."""
    option = next((each for each in Options.declared.values() if each.long == name), None)
    if option is None:  # such as --version
        return
    if option.needs:
        yield f"It needs {option.needs}."
    what = f"{option.excludes_if or 'It'} cannot be combined with"
    explained = [other for other in option.excludes if ": " in other]
    if others := [other for other in option.excludes if other not in explained]:
        yield f"{what} {', '.join(others)}."
    for other in explained:
        yield f"{what} {other}."
    if option.in_environ:
        yield f"The variable MCJAX_{option.name.upper()} sets it, too."


def _get_group(ctx: click.Context) -> str:
    which: str = ctx.meta.get(WHICH, COMMON)
    return which

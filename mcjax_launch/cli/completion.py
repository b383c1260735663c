"""Completion of options, of some of their values and of PROGRAM in bash, zsh and fish.

The shell runs the launcher with `_MCJAX_LAUNCH_COMPLETE` set; no job is run then.
"""

import os
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from mcjax_launch.cli.words import ALL, HELP, divide_words, get_group_key, may_be_left_out
from mcjax_launch.options.kinds import Offers
from mcjax_launch.options.options import Options

Items = list[CompletionItem[str]]


def complete(command: click.Command, name: str, variable: str) -> int:
    """Answer a shell's request for completion; return the exit status.

    Args:
        command: the click command.
        name: name of the command, as the user types it.
        variable: name of the variable with the request: `bash_source`, `bash_complete` and so on.

    """
    shell, _, asked = os.environ[variable].partition("_")
    kind = get_completion_class(shell)
    if kind is None or asked not in ("source", "complete"):
        return 1
    answering = _make_completer_class(kind)(command, {}, name, variable)
    click.echo(answering.source() if asked == "source" else answering.complete())
    return 0


def _make_completer_class(kind: type[ShellComplete]) -> type[ShellComplete]:
    """Return a subclass of `kind` that completes files after PROGRAM, not our options."""

    class UpToProgram(kind):  # type: ignore[valid-type, misc]
        def get_completions(self, args: list[str], incomplete: str) -> Items:
            args = _without_equals(args)
            # Options whose value may be left out, but which is likely at the end of the line.
            last = args[-1] if args else ""
            for option in Options.declared.values():
                offers = option.kind and option.kind.offers
                if last == option.long and option.metavar.startswith("[") and callable(offers):
                    return complete_value(offers, incomplete)
            words = _list_optional_words(self.cli.params, last)
            if fitting := [word for word in words if word.startswith(incomplete)]:
                return [CompletionItem(word) for word in fitting]
            own, rest = divide_words(args, self.cli.params)
            args = own + rest
            context = self.cli.make_context("", [*args], resilient_parsing=True)
            if context.params["program"] or "--" in args:
                return complete_value("files", incomplete)
            found: Items = super().get_completions(args, incomplete)
            return found

        def source(self) -> str:
            # click's script for fish divides at each comma, also of a description.
            text: str = super().source()
            return text.replace('string split ","', 'string split --max 1 ","')

    return UpToProgram


def _list_optional_words(options: Sequence[click.Parameter], name: str) -> Sequence[str]:
    """Return the words that may follow an option, but need not; [] if it is no such option."""
    if name == HELP:
        titles = dict.fromkeys(option.group for option in Options.declared.values())
        return [*map(get_group_key, titles), "other", ALL]
    for option in options:
        if isinstance(option, click.Option) and name in option.opts and may_be_left_out(option):
            return option.type.choices if isinstance(option.type, click.Choice) else ()
    return ()


def _without_equals(words: list[str]) -> list[str]:
    """Undo bash's splitting of `--color=never` into three words."""
    before = ["", *words]
    return [word for i, word in enumerate(words) if word != "=" or before[i][:2] != "--"]


def complete_value(offers: Offers, value: str) -> Items:
    """Return completions for the beginning of a value; see `kinds.Kind.offers`."""
    if callable(offers):
        return [
            CompletionItem(word, help=text) for word, text in offers() if word.startswith(value)
        ]
    if offers == "ranks":
        return [CompletionItem(word) for word in ("all", "none", "0") if word.startswith(value)]
    return [CompletionItem(value, type="dir" if offers == "folders" else "file")]

"""Options of `%mcjax`: the command's, as keywords of a session, and why notebooks lack some."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from mcjax_launch.cli.command import command
from mcjax_launch.cli.origins import list_options_from, list_set_options
from mcjax_launch.cli.project import with_project_options
from mcjax_launch.cli.usage_errors import in_one_line
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.describe import make_option_words
from mcjax_launch.options.options import Options

# By the names of options.
_REASONS = {
    **dict.fromkeys(
        ("check", "dry_run", "emit", "jobs", "json", "attach", "stop", "wait"),
        "run it as a command, as in !mcjax-launch --check",
    ),
    **dict.fromkeys(
        ("max_restarts", "on_rank_failure"),
        "%mcjax restart starts the ranks again, without their state",
    ),
    "pdb": "an exception is shown with your frames, below the cell",
    **dict.fromkeys(("module", "wrap"), "cells take the place of a program"),
    "detach": "the ranks stay until %mcjax stop or the kernel's end",
    "events": "the session reads them; open one with mcjax_launch.session(on_event=...)",
    "no_hook": "it makes the ranks run cells",
    "num_hosts": "give --hosts: the ranks of all hosts run cells",
    "status": "output appears below the cell",
    "stdin": "ranks of cells have no standard input",
}
# Variables of a kernel that choose how matplotlib shows pictures; in ranks, they cannot be shown.
_OF_KERNELS = ("module://matplotlib_inline", "module://ipykernel")
_BACKEND = "MPLBACKEND=module://_mcjax_launch.features.session.hook.figures"


def split_words(line: str) -> list[str]:
    """Return the words of a line, as a shell does.

    Raises:
        LaunchError: a quotation is not closed.

    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise LaunchError(f"{line.strip()}: {str(error).lower()}") from None


def parse_words(words: Sequence[str]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return keywords of `session` for options of the command, and the words behind them.

    Raises:
        Exit: the words ask for help.
        LaunchError: an option is unknown, wrong or not for notebooks.

    """
    try:
        context = command.make_context("%mcjax", list(words))
    except click.ClickException as error:
        raise LaunchError(in_one_line(error)) from None
    options = with_project_options(Options(**context.params), context)
    keywords = _make_keywords(options, context)
    if os.environ.get("MPLBACKEND", "").startswith(_OF_KERNELS):
        keywords["env"] = [_BACKEND, *keywords.get("env", ())]  # the user's own come later
    return keywords, options.program


def _make_keywords(options: Options, context: click.Context) -> dict[str, Any]:
    """Return the keywords for options that the words, a variable or the project sets.

    Raises:
        LaunchError: an option is not for notebooks.

    """
    typed = list_options_from(context, ParameterSource.COMMANDLINE)
    keywords: dict[str, Any] = {"processes": None}  # as many as the command starts
    for name in list_set_options(context):
        option = Options.declared[name]
        if option.only_command and option.in_project and name not in typed:  # for other commands
            continue
        if why := _REASONS.get(name) or option.only_command:
            raise LaunchError(f"{option.long} is not for notebooks: {why}")
        words = make_option_words(options, name)
        value = list(words[1::2]) if option.repeats else words[1] if option.kind else bool(words)
        keywords[option.keyword or name] = value
    return keywords

"""--watch."""

from __future__ import annotations

import os

from mcjax_launch.options.kinds import Kind, parse_text
from mcjax_launch.options.option import OptionGroup, declare_option


def may_be_watched(word: str) -> bool:
    """Return whether a word after --watch is its PATH, because it cannot be PROGRAM."""
    if os.path.isdir(word):
        return True
    return os.path.isfile(word) and not word.endswith(".py") and not os.access(word, os.X_OK)


WATCHED = Kind(parse_text, "[PATH]", offers="files", follows=may_be_watched)


class WatchOptions(OptionGroup, title="Limits and restarts", kw_only=True):
    """Options on saved files."""

    watch: tuple[str, ...] = declare_option(
        WATCHED,
        default=(),
        repeats=True,
        shown="off",
        only_command="the command keeps running",
        in_project=False,
        excludes=(
            "--emit",
            "--dry-run",
            "--num-hosts: each launcher would start its own ranks again",
            "--stdin: it can be read only once",
        ),
        help="Run again when PROGRAM, a Python file beside it or in a package there, or PATH is "
        "saved. Repeatable.",
        is_common=True,
    )

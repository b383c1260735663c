"""--watch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mcjax_launch.options.kinds import Kind, parse_text
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where


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


def acts(options: OptionGroup) -> bool:
    """Return whether the command runs the job again after saves, not once."""
    return bool(WatchOptions.of(options).watch)


def complete(job: Job, where: Where) -> Job:
    """Return the job; refuse a PROGRAM that cannot be read a second time."""
    if acts(job):
        from mcjax_launch.request.program import refuse_pipe

        refuse_pipe(job, "without --watch")
    return job


ADVISED = {"use --watch: it runs the job again at each save": "reload autoreload hot-reload"}
REMINDER = "--watch runs again at each save"

"""--pdb, and what it means for a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from mcjax_launch.errors import LaunchError
from mcjax_launch.options import kinds
from mcjax_launch.options.option import TERMINAL, OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where


class DebuggerOptions(
    OptionGroup,
    title="Debugging",
    example=("A debugger where an exception ends a rank:", "mcjax-launch -n 4 --pdb train.py"),
    kw_only=True,
):
    """Options on debuggers."""

    pdb: frozenset[int] | Literal["all"] | None = declare_option(
        kinds.SOME_RANKS,
        metavar="[RANKS]",
        only_command=TERMINAL,
        excludes=("--no-hook", "--stdin: both read the terminal"),
        help="Open a debugger where an exception ends one of these ranks, by default any.",
        is_common=True,
    )


def is_used(job: Job) -> bool:
    """Return whether exceptions open a debugger."""
    return bool(DebuggerOptions.of(job).pdb)


def is_in_ranks(job: Job) -> bool:
    """Return whether debuggers are patched: `breakpoint()` may open one in any job."""
    return job.hook


def complete(job: Job, where: Where) -> Job:
    """Return the job with the ranks of --pdb; refuse it where no user can type."""
    given = DebuggerOptions.of(job).pdb
    if given and not job.dry_run and not os.isatty(0):
        raise LaunchError("--pdb needs a terminal: stdin of mcjax-launch is not one")
    return job.copy_with(pdb=job.expand_ranks("--pdb", given))


EXAMPLE = "mcjax-launch -n 4 --pdb train.py          # a debugger where a rank fails"

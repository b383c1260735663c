"""--setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcjax_launch.options import kinds
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcjax_launch.job.job import Job


class SetupOptions(OptionGroup, title="Hosts", kw_only=True):
    """Options on what hosts do first."""

    setup: str | None = declare_option(
        kinds.TEXT,
        metavar="COMMAND",
        decides_what_runs=True,
        help="Run a command on each host at each start, before the ranks, which get the variables "
        "that it sets.",
    )
    # By host: the variables that the command has set, if it ran for an earlier attempt.
    setup_done: dict[str, dict[str, str | None]] | None = None


def is_used(job: Job) -> bool:
    """Return whether hosts run a command first."""
    return SetupOptions.of(job).setup is not None


def comes_first(job: OptionGroup) -> bool:
    """Return whether hosts run a command before they are prepared."""
    return SetupOptions.of(job).setup is not None


def describe(job: Job) -> Iterator[str]:
    """Yield lines for --dry-run."""
    if (command := SetupOptions.of(job).setup) is not None:
        import shlex

        quoted = shlex.quote(command)
        yield f"before, on each host: {quoted}, which may change its variables and Python"

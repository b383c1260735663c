"""--check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcjax_launch.options.option import OptionGroup, declare_flag

if TYPE_CHECKING:
    from mcjax_launch.options.options import Options


class CheckOptions(OptionGroup, title="Debugging", kw_only=True):
    """Options on checks."""

    check: bool = declare_flag(
        "Run no PROGRAM; report whether a job would work on these hosts, and whether all have the "
        "same PROGRAM.",
        in_project=False,
        only_command="it prints a list",
        is_common=True,
    )


def acts(options: Options) -> bool:
    """Return whether the command checks hosts in place of running a job."""
    return CheckOptions.of(options).check


def list_irrelevant(options: Options) -> tuple[str, ...]:
    """Return the names of options that a project means for its jobs alone."""
    return ("report",) if acts(options) else ()


COMMANDS = {"check": "use --check"}
EXAMPLE = "mcjax-launch --hosts a,b --check          # would a job work on these hosts?"

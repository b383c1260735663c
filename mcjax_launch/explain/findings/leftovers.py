"""Rules on processes that outlive the ranks that have started them."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.wire.messages import Leftover
from mcjax_launch.wording import format_names

# Processes, and characters of a command, to print.
_MOST, _LONGEST_COMMAND = 3, 80


def left_behind(view: View) -> Iterator[Finding]:
    """Find processes that were ended because they had outlived ranks that ended well."""
    left = sorted(view.state.leftovers, key=lambda process: (process.rank or 0, process.pid))
    if not left or view.state.stop is not None:
        return
    what, their, them, they = (
        ("1 process", "its rank", "it", "it")
        if len(left) == 1
        else (f"{len(left)} processes", "their ranks", "them", "they")
    )
    named = format_names([_describe(view, process) for process in left], _MOST)
    ranks = sorted({process.rank for process in left if process.rank is not None})
    yield Finding(
        "leftovers",
        f"ended {what} that outlived {their}: {named}; if {they} must finish, wait for {them} in "
        "the program (`wait` in a shell script)",
        tuple(ranks),
    )


def _describe(view: View, process: Leftover) -> str:
    command, of = process.command, ""
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[:_LONGEST_COMMAND]}..."
    if process.rank is not None:
        of = f"{view.format_ranks([process.rank])}, "
    return f"{command} ({of}pid {process.pid})"

"""How the console looks: a value."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Style:
    """How the console looks.

    Args:
        prefix: whether lines are prefixed at all.
        timestamps: whether they carry the time of day.
        colour: "auto", "always" or "never".
        show: the ranks to show; None for all.
        collapse: whether equal lines of several ranks are shown once.
        quiet, verbose: fewer or more lines of the launcher's own; with verbose all of the ranks'.

    """

    prefix: bool = True
    timestamps: bool = False
    colour: str = "auto"
    show: Collection[int] | None = None
    collapse: bool = False
    quiet: bool = False
    verbose: bool = False

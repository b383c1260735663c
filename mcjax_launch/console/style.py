"""Whether the console is in colour."""

from __future__ import annotations

from collections.abc import Mapping


def wants_colour(
    choice: str, is_terminal: bool, environ: Mapping[str, str], *, in_log: bool = False
) -> bool:
    """Whether to colour.

    Args:
        choice: the user's: "auto", "always" or "never".
        is_terminal: whether the output goes to a terminal.
        in_log: whether it goes to a log that shows colours.
        environ: may hold NO_COLOR, FORCE_COLOR and TERM.

    """
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return in_log or (is_terminal and environ.get("TERM") != "dumb")

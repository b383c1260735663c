"""How the console looks: a value."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mcjax_launch.protocol.value import Value


class Style(Value, kw_only=True):
    """How the console looks.

    Args:
        prefix: whether lines have prefixes at all.
        timestamps: whether they carry the time of day.
        colour: "auto", "always" or "never".
        show: the ranks to show; None for all.
        collapse: whether equal lines of several ranks are shown once.
        quiet: only the launcher's own lines that matter.
        verbose: all of the launcher's own lines, and all of the ranks'.
        github: it is a log of GitHub Actions.
        status: a line at the bottom of a terminal shows how the job comes along.

    """

    prefix: bool = True
    timestamps: bool = False
    colour: str = "auto"
    show: Collection[int] | None = None
    collapse: bool = False
    quiet: bool = False
    verbose: bool = False
    github: bool = False
    status: bool = False

    def shows(self, rank: int) -> bool:
        """Whether a rank's output is shown."""
        return self.show is None or rank in self.show


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

"""Prefixes and colours of lines on the console, and paths of log files; pure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from mcjax_launch.job import placeholders
from mcjax_launch.job.plan import Plan
from mcjax_launch.ranks import format_ranges
from mcjax_launch.wire.value import Value

_SEVERAL = b"1"  # bold: no rank's colour
# The launcher's own lines. Only failures are coloured: all other colours are those of ranks.
_NAME = "mcjax-launch:"
_FAINT, _BOLD, _ALARM, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[1;31m", "\x1b[0m"
_HINT = "hint:"
_COLOURS = (b"36", b"33", b"35", b"32", b"34", b"96", b"93", b"95", b"92", b"94")


class RankLabel(Value):
    """Facts about a rank that the console needs.

    Args:
        process_id: number of the rank.
        host: name of its host; "" if the job has only one host.
        folder: folder of its log files; None if it has no log files.

    """

    process_id: int
    host: str = ""
    folder: str | None = None

    def get_log_path(self, end: str) -> str:
        """Return the path of a log file of the rank; `end` is "out" or "err"."""
        assert self.folder is not None
        return os.path.join(self.folder, f"{self.process_id}.{end}")


class Prefixes(Value):
    """Style of the prefixes of an output.

    Args:
        shown: True if lines have prefixes.
        colour: True if prefixes are coloured.

    """

    shown: bool
    colour: bool

    def format_rank_prefix(self, label: RankLabel, width: int) -> bytes:
        """Return a rank's prefix, with the number padded to `width` columns."""
        name = f"{label.process_id:>{width}}{' ' + label.host if label.host else ''}"
        return self._make(name, _COLOURS[label.process_id % len(_COLOURS)])

    def format_shared_prefix(self, ranks: Sequence[int]) -> bytes:
        """Return the prefix of a line that several ranks have printed."""
        return self._make(format_ranges(ranks), _SEVERAL)

    def format_own_line(self, line: str, *, headline: bool = False, alarm: bool = False) -> str:
        """Return a line of the launcher with its prefix and a newline.

        Args:
            line: the line without its newline.
            headline: True for the first line of the job's summary.
            alarm: True for a headline about a failure.

        """
        if not self.colour:
            return f"{_NAME} {line}\n"
        if headline:
            line = f"{_ALARM if alarm else _BOLD}{line}{_PLAIN}"
        elif line.startswith(_HINT):
            line = f"{_BOLD}{_HINT}{_PLAIN}{line.removeprefix(_HINT)}"
        return f"{_FAINT}{_NAME}{_PLAIN} {line}\n"

    def format_status(self, text: str, columns: int) -> str:
        """Return a status line, cut to one row of a terminal with `columns` columns."""
        line = f"{_NAME} {text}"[: max(0, columns - 1)]
        return f"{_FAINT}{line}{_PLAIN}" if self.colour else line

    def _make(self, name: str, code: bytes) -> bytes:
        if not self.shown:
            return b""
        if not self.colour:
            return b"[%s] " % name.encode()
        return b"\x1b[%sm[%s]\x1b[0m " % (code, name.encode())


def wants_colour(
    choice: str, is_terminal: bool, environ: Mapping[str, str], *, in_log: bool = False
) -> bool:
    """Return whether to colour the output.

    Args:
        choice: the user's choice: "auto", "always" or "never".
        is_terminal: True if the output goes to a terminal.
        environ: environment variables, of which NO_COLOR, FORCE_COLOR and TERM count.
        in_log: True if the output goes to a log that shows colours.

    """
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return in_log or (is_terminal and knows_sequences(environ))


def knows_sequences(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to understand control sequences."""
    return environ.get("TERM", "") not in ("", "dumb")


def format_time_of_day(seconds: float) -> bytes:
    """Return a time in seconds since the epoch as text, like `12:34:56.789 `."""
    clock = time.strftime("%H:%M:%S", time.localtime(seconds))
    return f"{clock}.{int(seconds * 1000) % 1000:03} ".encode()


def make_labels(plan: Plan, log_dir: str | None) -> list[RankLabel]:
    """Return the label of each rank.

    Args:
        plan: plan with the ranks.
        log_dir: folder for log files, maybe with placeholders; None for no log files.

    """
    several = len(plan.hosts) > 1
    return [
        RankLabel(
            rank.process_id,
            rank.host.name if several else "",
            os.path.abspath(placeholders.fill(log_dir, rank.values)) if log_dir else None,
        )
        for rank in plan.ranks
    ]


def find_common_folder(named: list[RankLabel]) -> str | None:
    """Return the folder that contains all log files; None if there are no log files."""
    folders = [label.folder for label in named if label.folder is not None]
    return os.path.commonpath(folders) if folders else None

"""The annotation of a failed run, for GitHub Actions.

Its runner takes a line that begins with `::`, blanks aside, for a command, on stdout and on stderr
alike.
"""

import os
import re
from collections.abc import Callable

from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.root_cause import JobStopped, NotStarted, RankFailed
from mcjax_launch.diagnosis.summary import Summary
from mcjax_launch.jax_messages.noise import without_noise
from mcjax_launch.report.record import last_lines
from mcjax_launch.runs.state import RunState
from mcjax_launch.wording import visible

_MOST = 4000  # characters: GitHub shows some 4 KB of a message
_MOST_OUTPUT, _MOST_LINES = 2000, 5
_COLOURS = r"\x1b\[[0-9;]*m"
_PLACE = r"(.+):(\d{1,9}) in "
_IN_DATA = {ord(char): f"%{ord(char):02X}" for char in "%\r\n"}
_IN_PROPERTIES = {**_IN_DATA, ord(":"): "%3A", ord(","): "%2C"}


def command(level: str, text: str, file: str | None = None, line: int | None = None) -> str:
    """An annotation as a command for the runner: one whole line.

    Args:
        level: "error" or "warning".
        text: of any lines.
        file: that it stands at, as a path in the repository, if it stands at one.
        line: of the file.

    """
    found = {"file": file, "line": line, "title": "mcjax-launch"}
    properties = ",".join(
        f"{key}={str(value).translate(_IN_PROPERTIES)}"
        for key, value in found.items()
        if value is not None
    )
    return f"::{level} {properties}::{text.translate(_IN_DATA)}\n"


class Annotations:
    """Turns the root cause into an annotation, and those of earlier attempts into warnings.

    Args:
        write: writes whole lines to the log.
        workspace: the folder of the repository.

    """

    def __init__(self, write: Callable[[str], object], workspace: str) -> None:
        self._write = write
        self._workspace = workspace
        self._last: Attempt | None = None

    def ended(self, attempt: Attempt) -> None:
        """An attempt is over; if there is another, its failure was not the job's."""
        self._annotate("warning")
        self._last = attempt

    def over(self, status: int, _: str) -> None:
        """The last attempt's failure was the job's; an error of its start says so itself."""
        if status:
            self._annotate("error")

    def _annotate(self, level: str) -> None:
        last = self._last
        if last is not None and not isinstance(last.summary.ending, NotStarted):
            self._write(annotation(level, last.summary, last.state, self._workspace))


def annotation(level: str, summary: Summary, state: RunState, workspace: str) -> str:
    """The command for a run's root cause; empty if it ended well.

    Args:
        level: "error" or "warning".
        summary: of the run.
        state: of the run.
        workspace: the folder of the repository, which paths are to be relative to.

    """
    if not summary.lines:
        return ""
    text = "\n".join([summary.lines[0], *_printed(summary), *summary.lines[1:]])
    return command(level, text[:_MOST], *_place(summary, state, workspace))


def _printed(summary: Summary) -> list[str]:
    """The last lines on stdout of a rank that failed without a word on stderr, as pytest does."""
    if not isinstance(summary.ending, RankFailed):
        return []
    run = summary.ending.culprit
    has_words = run.failure is not None and not run.failure.exited
    if has_words or without_noise(run.stderr.splitlines())[0]:
        return []
    plain = re.sub(_COLOURS, "", run.stdout)
    kept, _ = without_noise(last_lines(plain, _MOST_OUTPUT))
    lines = [f"  | {visible(line)}" for line in kept[-_MOST_LINES:]]
    return ["the last lines of its stdout:", *lines] if lines else []


def _place(summary: Summary, state: RunState, workspace: str) -> tuple[str | None, int | None]:
    """Where in the repository the root cause is, if it is there."""
    match summary.ending:
        case RankFailed(culprit=run):
            failure = run.failure
        case JobStopped(stop) if stop.rank is not None:
            failure = state.ranks[stop.rank].failure
        case _:
            failure = None
    found = re.match(_PLACE, failure.placed.where or "") if failure is not None else None
    if found is None:
        return None, None
    root, path = os.path.realpath(workspace), os.path.realpath(found[1])
    if not path.startswith(os.path.join(root, "")):
        return None, None
    return os.path.relpath(path, root), int(found[2])

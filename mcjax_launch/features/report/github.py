"""The annotation of a failed run, for GitHub Actions.

GitHub's runner treats a line that begins with `::`, blanks aside, as a command, both on stdout and
on stderr.
"""

import contextlib
import os
import re
from collections.abc import Callable

from mcjax_launch.features.report.run_record import select_last_lines
from mcjax_launch.journal.attempt import Attempt, JobOutcome
from mcjax_launch.journal.ending import JobStopped, NotStarted, RankFailed
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.summary import Summary
from mcjax_launch.options import features as declared
from mcjax_launch.wording import escape_unprintable

_MOST = 4000  # characters: GitHub shows about 4 KB of a message
_MOST_OUTPUT, _MOST_LINES = 2000, 5
_PLACE = r"(.+):(\d{1,9}) in "
_IN_DATA = {ord(char): f"%{ord(char):02X}" for char in "%\r\n"}
_IN_PROPERTIES = {**_IN_DATA, ord(":"): "%3A", ord(","): "%2C"}


def format_command(level: str, text: str, file: str | None = None, line: int | None = None) -> str:
    """Return an annotation as a command for the runner, in one whole line.

    Args:
        level: "error" or "warning".
        text: message of any number of lines.
        file: path of the annotated file in the repository; None for no file.
        line: line number in the file; None for no line.

    """
    found = {"file": file, "line": line, "title": "mcjax-launch"}
    properties = ",".join(
        f"{key}={str(value).translate(_IN_PROPERTIES)}"
        for key, value in found.items()
        if value is not None
    )
    return f"::{level} {properties}::{text.translate(_IN_DATA)}\n"


def _write(lines: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads
        os.write(2, lines.encode("utf-8", "replace"))


class Annotations:
    """Reader that prints the root cause as an annotation; of earlier attempts, as a warning.

    Args:
        workspace: the folder of the repository.
        write: writes whole lines to the log.

    """

    def __init__(self, workspace: str, write: Callable[[str], object] = _write) -> None:
        self._write = write
        self._workspace = workspace
        self._last: Attempt | None = None

    def on_attempt(self, attempt: Attempt, at: float) -> None:
        """Annotate the previous attempt as a warning: its failure was not the job's."""
        self._annotate("warning")
        self._last = attempt

    def on_job_outcome(self, outcome: JobOutcome, at: float) -> None:
        """Annotate the last attempt as an error, if the job failed after it was started."""
        if outcome.status:
            self._annotate("error")

    def _annotate(self, level: str) -> None:
        last = self._last
        if last is not None and not isinstance(last.summary.ending, NotStarted):
            self._write(format_annotation(level, last.summary, last.state, self._workspace))


def format_annotation(level: str, summary: Summary, state: RunState, workspace: str) -> str:
    """Return the command for a run's root cause; "" if the run ended well.

    Args:
        level: "error" or "warning".
        summary: summary of the run.
        state: state of the run.
        workspace: the folder of the repository; paths become relative to it.

    """
    if not summary.lines:
        return ""
    text = "\n".join([summary.lines[0], *_get_last_stdout(summary), *summary.lines[1:]])
    return format_command(level, text[:_MOST], *_find_place(summary, state, workspace))


def _get_last_stdout(summary: Summary) -> list[str]:
    """Return the last lines of stdout of a rank that failed without output on stderr.

    pytest, for instance, prints errors on stdout.
    """
    if not isinstance(summary.ending, RankFailed):
        return []
    run = summary.ending.culprit
    has_words = run.failure is not None and not run.failure.exited
    if has_words or _without_noise(run.stderr):
        return []
    kept = _without_noise("\n".join(select_last_lines(run.stdout, _MOST_OUTPUT)))
    lines = [f"  | {escape_unprintable(line)}" for line in kept[-_MOST_LINES:]]
    return ["the last lines of its stdout:", *lines] if lines else []


def _without_noise(text: str) -> list[str]:
    """Return lines without those of JAX that have no value for the user."""
    noise, lines = declared.load("jax_messages.noise"), text.splitlines()
    return lines if noise is None else noise.without_noise(lines)[0]


def _find_place(summary: Summary, state: RunState, workspace: str) -> tuple[str | None, int | None]:
    """Return (file, line) of the root cause if that is in the repository, else (None, None)."""
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

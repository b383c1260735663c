"""Batch scripts: their directives, their limit of time and the line that runs the launcher."""

import math
import os
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError

if TYPE_CHECKING:
    from mcjax_launch.schedulers.submission import Submission

# Schedulers count them in 32 bits.
MOST_MINUTES = 1 << 31
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}


def script(
    prefix: str,
    directives: Sequence[str],
    submission: "Submission",
    *,
    before: Sequence[str] = (),
) -> str:
    """A script for bash.

    The launcher takes the shell's place, so that signals for the script's process are for it.

    Args:
        prefix: how a line for the scheduler begins.
        directives: of our own; the user's come after them.
        submission: the job.
        before: lines to run first.

    """
    lines = [f"{prefix} {directive}" for directive in (*directives, *submission.engine_option)]
    run = f"exec {' '.join(map(quoted, submission.command()))}"
    return "\n".join(["#!/bin/bash", *lines, "", *before, run, ""])


def quoted(word: str) -> str:
    """Return a word for bash, on one line: a line of the word could be one for the scheduler."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in _ESCAPES or char.isprintable():
        return _ESCAPES.get(char, char)
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def minutes(submission: "Submission") -> int | None:
    """What all attempts may take; None for no limit, or one beyond what can be written."""
    if submission.attempt_s is None:
        return None
    whole = math.ceil(submission.attempt_s * (submission.max_restarts + 1) / 60) + 1
    return whole if whole < MOST_MINUTES else None


def without(directives: Sequence[str], submission: "Submission", *given: str) -> list[str]:
    """Our directives, but for those that the user writes otherwise.

    Args:
        directives: of our own.
        submission: whose engine options are the user's.
        given: how options begin of which the user's take the place of ours, as in `-l select=`.

    """
    theirs = tuple(
        start for start in given if any(o.startswith(start) for o in submission.engine_option)
    )
    return [one for one in directives if not one.startswith(theirs)] if theirs else [*directives]


def check(submission: "Submission", program: str, example: str) -> None:
    """Refuse a name or options that the scheduler would not take.

    Args:
        submission: the job.
        program: that takes its script.
        example: of an option.

    Raises:
        LaunchError: there are such.

    """
    if not re.fullmatch(r"[\w.:+@%-]+", submission.name):
        raise LaunchError(f"--name {submission.name}: use letters, digits and . _ - only")
    for option in submission.engine_option:
        if not re.match(r"--?[A-Za-z]", option) or not option.isprintable():
            raise LaunchError(
                f"--engine-option {option}: not an option of {program}; write it as in "
                f"--engine-option {example}"
            )

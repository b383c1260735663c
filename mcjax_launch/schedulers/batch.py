"""--emit slurm: a batch script, made from a template."""

import math
import os
import re
import shlex

from mcjax_launch.errors import LaunchError
from mcjax_launch.schedulers import template
from mcjax_launch.schedulers.submission import Submission

# Schedulers count minutes in 32 bits.
_MOST_MINUTES = 1 << 31
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}


def build_script(submission: Submission) -> str:
    """Return a bash script, in which --engine-option directives replace those of the template.

    The script ends with `exec`, so that signals to its process reach the launcher.

    Raises:
        LaunchError: the scheduler would not accept --name or an --engine-option.

    """
    _check(submission)
    theirs = {name for option in submission.engine_option for name in _find_set_names(option)}
    lines = template.read("slurm.sh")
    ours = [line for line in lines if not _find_set_names(line.partition(" ")[2]) & theirs]
    return template.fill(ours, _collect_values(submission))


def _collect_values(submission: Submission) -> template.Values:
    minutes = _compute_minutes(submission)
    return {
        "name": submission.name,
        "hosts": submission.num_hosts,
        "ranks": submission.procs_per_host,
        "gpus": submission.gpus or None,
        "time": None if submission.attempt_s is None else minutes or "UNLIMITED",
        "max_restarts": submission.max_restarts,
        "options": list(submission.engine_option),
        "command": " ".join(map(quote_word, submission.make_command())),
    }


def quote_word(word: str) -> str:
    """Quote a word for bash on one line, because a second line could be read as a directive."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escape_char, word))}'"


def _escape_char(char: str) -> str:
    if char in _ESCAPES or char.isprintable():
        return _ESCAPES.get(char, char)
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def _compute_minutes(submission: Submission) -> int | None:
    """Return the time limit for all attempts in minutes; None for none, or if it is too large."""
    if submission.attempt_s is None:
        return None
    whole = math.ceil(submission.attempt_s * (submission.max_restarts + 1) / 60) + 1
    return whole if whole < _MOST_MINUTES else None


def _find_set_names(option: str) -> set[str]:
    """Return the name that an option of sbatch sets, such as `{"--nodes"}`."""
    word = re.match(r"--?[A-Za-z][\w-]*", option)
    return {word[0]} if word else set()


def _check(submission: Submission) -> None:
    """Refuse a --name or an --engine-option that the scheduler would not accept."""
    if not re.fullmatch(r"[\w.:+@%-]+", submission.name):
        raise LaunchError(f"--name {submission.name}: use letters, digits and . _ - only")
    for option in submission.engine_option:
        if not re.match(r"--?[A-Za-z]", option) or not option.isprintable():
            raise LaunchError(
                f"--engine-option {option}: not an option of sbatch; write it as in "
                "--engine-option --partition=gpu"
            )

"""--emit for batch systems: scripts, made from the template of each scheduler."""

import math
import os
import re
import shlex

from mcjax_launch.errors import LaunchError
from mcjax_launch.schedulers import template
from mcjax_launch.schedulers.submission import Submission

# By kind, the program that takes the script, and an example of its options.
_PROGRAMS = {
    "slurm": ("sbatch", "--partition=gpu"),
    "pbs": ("qsub", "'-q gpu'"),
    "lsf": ("bsub", "'-q gpu'"),
    "sge": ("qsub", "'-pe orte'"),
    "flux": ("flux batch", "--queue=gpu"),
}
# Schedulers count minutes in 32 bits.
_MOST_MINUTES = 1 << 31
# Between the end of the ranks' grace and that of Flux's time for the job.
_MARGIN_S = 30
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}


def build_script(submission: Submission) -> str:
    """Return a bash script, in which --engine-option directives replace those of the template.

    The script ends with `exec`, so that signals to its process reach the launcher.

    Raises:
        LaunchError: the scheduler would not accept --name or an --engine-option.

    """
    _check(submission)
    values = _collect_values(submission)
    # A parallel environment of Grid Engine needs the number of slots.
    options = [
        f"{option} {values['slots']}" if re.fullmatch(r"-pe\s+\S+", option) else option
        for option in submission.engine_option
    ]
    theirs = {name for option in options for name in _find_set_names(option)}
    if theirs & {"-l select", "-l nodes"}:  # the second is Torque's
        theirs |= {"-l select", "-l place"}
    lines = template.read(f"{submission.emit}.sh")
    ours = [line for line in lines if not _find_set_names(line.partition(" ")[2]) & theirs]
    return template.fill(ours, {**values, "options": options})


def _collect_values(submission: Submission) -> template.Values:
    minutes = _compute_minutes(submission)
    slots = submission.num_hosts * submission.procs_per_host
    hours, rest = (None, None) if minutes is None else divmod(minutes, 60)
    return {
        "name": submission.name,
        "hosts": submission.num_hosts,
        "several_hosts": submission.num_hosts > 1,
        "ranks": submission.procs_per_host,
        "slots": slots,
        "several_slots": slots > 1,
        "gpus": submission.gpus or None,
        "gpus_per_rank": submission.gpus_per_process,
        "whole_minutes": minutes,
        "hours": hours,
        "minutes": rest,
        "time": None if submission.attempt_s is None else minutes or "UNLIMITED",
        "warning": f"{submission.grace + _MARGIN_S:g}",
        "max_restarts": submission.max_restarts,
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
    """Return the names that a scheduler's option sets: `{"-q"}`, or `{"-l a", "-l b"}` for `-l`."""
    if resources := re.match(r"-l(.*)", option):
        return {f"-l {part.partition('=')[0].strip()}" for part in resources[1].split(",")}
    word = re.match(r"--?[A-Za-z][\w-]*", option)
    return {word[0]} - {"-R"} if word else set()  # LSF joins what several of these require


def _check(submission: Submission) -> None:
    """Refuse a --name or an --engine-option that the scheduler would not accept."""
    if not re.fullmatch(r"[\w.:+@%-]+", submission.name):
        raise LaunchError(f"--name {submission.name}: use letters, digits and . _ - only")
    program, example = _PROGRAMS[submission.emit]
    for option in submission.engine_option:
        if not re.match(r"--?[A-Za-z]", option) or not option.isprintable():
            raise LaunchError(
                f"--engine-option {option}: not an option of {program}; write it as in "
                f"--engine-option {example}"
            )

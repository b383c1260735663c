"""--emit slurm: a batch script, made from a template."""

import math
import re
import shlex

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.emit import template
from mcjax_launch.features.emit.submission import Submission


def build_script(submission: Submission) -> str:
    """Return a bash script; sbatch lets its --engine-option directives, the last, win.

    The script ends with `exec`, so that signals to its process reach the launcher.

    Raises:
        LaunchError: the scheduler would not accept --name or an --engine-option.

    """
    _check(submission)
    values = {
        "name": submission.name,
        "hosts": submission.num_hosts,
        "ranks": submission.procs_per_host,
        "gpus": submission.gpus or None,
        "minutes": _compute_minutes(submission),
        "max_restarts": submission.max_restarts,
        "options": list(submission.engine_option),
        "command": shlex.join(submission.make_command()),
    }
    return template.fill(template.read("slurm.sh"), values)


def _compute_minutes(submission: Submission) -> int | None:
    """Return the time limit for all attempts in minutes; None for no limit."""
    if submission.attempt_s is None:
        return None
    return math.ceil(submission.attempt_s * (submission.max_restarts + 1) / 60) + 1


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

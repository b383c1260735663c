"""--emit in place of a run."""

from __future__ import annotations

from mcjax_launch.cli import own_lines
from mcjax_launch.cli.command_line import CommandLine
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.emit.submission import Submission, make_submission


def act(line: CommandLine) -> int:
    """Print a batch script or manifest, and return the exit status.

    Raises:
        LaunchError: an option that the scheduler needs is missing or invalid.

    """
    line.approve(is_elsewhere=True)
    own_lines.print_text(build(make_submission(line.options, line.list_set())))
    return 0


def build(submission: Submission) -> str:
    """Return the batch script or manifest of a submission.

    Raises: see `act`.

    """
    if submission.tpu is not None and submission.emit != "jobset":
        raise LaunchError("--tpu needs --emit jobset, which keeps each slice on one node pool")
    if submission.emit == "slurm":
        from mcjax_launch.features.emit.slurm import build_script

        return build_script(submission)
    from mcjax_launch.features.emit.kubernetes import build_manifest

    return build_manifest(submission)

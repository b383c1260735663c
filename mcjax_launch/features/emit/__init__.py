"""--emit: batch scripts and manifests of jobs, made from templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.errors import LaunchError

if TYPE_CHECKING:
    from mcjax_launch.features.emit.submission import Submission
    from mcjax_launch.options.options import Options


def emit(options: Options, given: Sequence[str]) -> str:
    """Return the batch script or manifest that `--emit` prints.

    Args:
        options: all options.
        given: names of the options that were set, by the command line or a variable.

    Raises:
        LaunchError: an option that the scheduler needs is missing or invalid.

    """
    from mcjax_launch.features.emit.submission import make_submission

    return build(make_submission(options, given))


def build(submission: Submission) -> str:
    """Return the batch script or manifest of a submission.

    Raises: see `emit`.

    """
    if submission.tpu is not None and submission.emit != "jobset":
        raise LaunchError("--tpu needs --emit jobset, which keeps each slice on one node pool")
    if submission.emit == "slurm":
        from mcjax_launch.features.emit.slurm import build_script

        return build_script(submission)
    from mcjax_launch.features.emit.kubernetes import build_manifest

    return build_manifest(submission)

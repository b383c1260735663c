"""--verify-spmd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcjax_launch.options.option import OptionGroup, declare_flag

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job


class RecorderOptions(OptionGroup, title="Debugging", kw_only=True):
    """Options on the comparison of ranks."""

    verify_spmd: bool = declare_flag(
        "End the job (status 1) at the first difference between ranks' programs, or between their "
        "values of a replicated array.",
        excludes=("--no-hook", "--on-rank-failure: ranks that go on run other programs"),
    )


def is_used(job: Job) -> bool:
    """Return whether differences end the job."""
    return RecorderOptions.of(job).verify_spmd


def is_in_ranks(job: Job) -> bool:
    """Return whether ranks record their programs; those that run alone do it in another way."""
    return job.hook and not job.alone

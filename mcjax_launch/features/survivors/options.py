"""--on-rank-failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mcjax_launch.options import kinds
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where


class SurvivorOptions(OptionGroup, title="Limits and restarts", kw_only=True):
    """Options on ranks that outlive others."""

    on_rank_failure: Literal["stop", "continue"] = declare_option(
        kinds.make_choice_kind("stop", "continue"),
        default="stop",
        help="After a rank's failure stop the job, or let the others continue.",
    )


def is_used(job: Job) -> bool:
    """Return whether ranks may go on when another one fails."""
    return job.survives


def complete(job: Job, where: Where) -> Job:
    """Return the job, which may outlive a rank's failure if that is asked for."""
    goes_on = SurvivorOptions.of(job).on_rank_failure == "continue"
    return job.copy_with(survives=job.survives or goes_on)

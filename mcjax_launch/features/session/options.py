"""Use of sessions by a job; they have no option."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job


def is_used(job: Job) -> bool:
    """Return whether ranks make calls."""
    return job.has_calls

"""The field that tells a session's job from others; it has no option."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcjax_launch.options.option import OptionGroup

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job


class SessionFields(OptionGroup, kw_only=True):
    """Fields of the job."""

    has_calls: bool = False  # its ranks make calls of the program that has started the launcher


def is_used(job: Job) -> bool:
    """Return whether ranks make calls."""
    return SessionFields.of(job).has_calls

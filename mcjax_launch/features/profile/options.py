"""--profile, and what it means for a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mcjax_launch.options.kinds import make_checked_kind, parse_duration
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where

#: By default a profile begins this many seconds after initialize().
PROFILE_AFTER_S = 10.0


def split_profile(words: str) -> tuple[str, float]:
    """Divide `DIR[@D]` into the folder and D in seconds (10 if it is left out)."""
    folder, mark, after = words.rpartition("@")
    is_timed = bool(mark) and after[:1].isdigit()
    if not is_timed:
        folder = words
    if not folder.strip(":@"):
        raise ValueError(f"{words!r} names no folder: write DIR or DIR@30s")
    return folder, parse_duration(after) if is_timed else PROFILE_AFTER_S


PROFILE = make_checked_kind(split_profile, "DIR[@D]", "Path", offers="folders")


class ProfileOptions(OptionGroup, title="Debugging", kw_only=True):
    """Options on profiles."""

    profile: str | None = declare_option(
        PROFILE,
        once=True,
        excludes=("--no-hook",),
        help="Trace all ranks with JAX's profiler for the same 5 s, from D (10s) after "
        "initialize() on, into DIR/RANK.",
    )
    profile_after: float = PROFILE_AFTER_S  # seconds from initialize() to the first


def is_used(job: Job) -> bool:
    """Return whether ranks are profiled."""
    return ProfileOptions.of(job).profile is not None


def complete(job: Job, where: Where) -> Job:
    """Return the job with the absolute folder of --profile, and when it begins."""
    if not (given := ProfileOptions.of(job).profile):
        return job
    folder, after_s = split_profile(given)
    return job.copy_with(profile=os.path.abspath(folder), profile_after=after_s)

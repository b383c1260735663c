"""--compile-once and --compile-cache, and what they mean for a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from mcjax_launch.options.kinds import make_checked_kind, make_choice_kind, parse_size
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where


def split_cache(value: str) -> tuple[str, int]:
    """Divide `DIR[:SIZE]` into the folder and the size in bytes; 0 for no limit."""
    folder, colon, size = value.rpartition(":")
    has_size = bool(colon) and os.sep not in size
    if not has_size:
        folder = value
    kept = parse_size(size) if has_size else 0
    if has_size and not kept:
        raise ValueError(f"{size!r} is not a size: write DIR or DIR:5G")
    if not folder:
        raise ValueError(f"{value!r} names no folder: write DIR or DIR:5G")
    return folder, kept or 0


CACHE = make_checked_kind(split_cache, "DIR[:SIZE]", "Path", offers="folders")


class CompileOptions(OptionGroup, title="Job", kw_only=True):
    """Options on the sharing of compiled programs."""

    compile_once: Literal["auto", "on", "off"] = declare_option(
        make_choice_kind("auto", "on", "off"),
        default="auto",
        excludes=("--compile-cache",),
        excludes_if="off",
        help="Compile each program once per host: the other ranks load it; auto: on CPU devices.",
    )
    compile_cache: str | None = declare_option(
        CACHE,
        once=True,
        excludes=("--no-hook",),
        help="Keep compiled programs in DIR for later runs, at most SIZE of them (needs filelock).",
        is_common=True,
    )
    compile_cache_bytes: int = 0  # 0: no limit


def is_used(job: Job) -> bool:
    """Return whether ranks may share compiled programs with each other, or with a later run."""
    own = CompileOptions.of(job)
    shares = job.num_processes > 1 or own.compile_cache is not None
    return job.hook and own.compile_once != "off" and shares


def complete(job: Job, where: Where) -> Job:
    """Return the job with the absolute folder of --compile-cache, and its limit."""
    if not (given := CompileOptions.of(job).compile_cache):
        return job
    folder, size = split_cache(given)
    folder = os.path.abspath(os.path.expanduser(folder))
    return job.copy_with(compile_cache=folder, compile_cache_bytes=size)


REMINDER = "--compile-cache keeps compiled programs"

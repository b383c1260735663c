"""--preload, and what it means for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcjax_launch.options.kinds import Kind
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where


def parse_modules(value: Any) -> tuple[str, ...]:
    """Read names of Python modules, as `jax,flax.linen`; `none` becomes ()."""
    words = value.split(",") if isinstance(value, str) else map(str, value)
    names = tuple(name.strip() for name in words if name.strip())
    if names == ("none",):
        return ()
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a module: write jax,flax")
    return names


AUTO = ("auto",)
MODULES = Kind(parse_modules, "MODULES", "Words")


class PreloadOptions(OptionGroup, title="Job", kw_only=True):
    """Options on modules that are imported early."""

    preload: tuple[str, ...] = declare_option(
        MODULES,
        default=AUTO,
        shown="auto",
        metavar="auto|none|MODULES",
        help="Import modules (jax,flax) once per host and fork the ranks from there; "
        "auto: jax, for programs that import it.",
    )


def is_used(job: Job) -> bool:
    """Return whether modules are imported once on each host."""
    return bool(PreloadOptions.of(job).preload)


def complete(job: Job, where: Where) -> Job:
    """Return the job, with --preload none if preloading cannot speed up its start."""
    if PreloadOptions.of(job).preload != AUTO:
        return job
    from mcjax_launch.features.preload.choice import find_reason_against

    why = find_reason_against(job, where.hosts)
    if why and where.say is not None:
        where.say(f"--preload auto: {why}; the ranks are started afresh")
    return job.copy_with(preload=()) if why else job

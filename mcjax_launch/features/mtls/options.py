"""--mtls, and what it means for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mcjax_launch.options import kinds
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where


class TlsOptions(OptionGroup, title="Hosts", kw_only=True):
    """Options on the coordinator's connections."""

    mtls: Literal["auto", "on", "off"] = declare_option(
        kinds.make_choice_kind("auto", "on", "off"),
        default="auto",
        excludes=("--no-hook: the hook gives ranks their certificate",),
        excludes_if="on",
        help="Let only this job's processes reach the coordinator, by mutual TLS; auto: on "
        "several hosts with jax 0.12 or newer.",
    )


def is_used(job: Job) -> bool:
    """Return whether ranks may join by TLS."""
    return TlsOptions.of(job).mtls != "off"


def complete(job: Job, where: Where) -> Job:
    """Return the job, with --mtls off if TLS is not possible or not needed."""
    if not is_used(job):
        return job
    from mcjax_launch.features.mtls.choice import choose

    return choose(job, where)

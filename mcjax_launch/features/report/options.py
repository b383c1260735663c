"""--report, and what it means for a job; further records of runs, made where they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.options import kinds
from mcjax_launch.options.option import OptionGroup, declare_option

if TYPE_CHECKING:
    from mcjax_launch.job.job import Job
    from mcjax_launch.options.features import Where

# A file in every container of Kubernetes, which reads it when the container ends.
_TERMINATION_LOG = "/dev/termination-log"


class ReportOptions(OptionGroup, title="Debugging", kw_only=True):
    """Options on records of runs."""

    report: str | None = declare_option(
        kinds.FILE,
        once=True,
        help="Write a record of the run to FILE (.json or .html), to read or compare later.",
        is_common=True,
    )


def complete(job: Job, where: Where) -> Job:
    """Return the job with what a record needs; refuse a file that cannot be written."""
    if (path := ReportOptions.of(job).report) is None:
        return job
    from mcjax_launch.features.report.report_file import check_report

    check_report(path)
    return job.copy_with(record=True)


def make_readers(
    job: Job,
    words: Callable[[], Sequence[str]],
    say: Callable[[str], object],
    has_client: bool,
) -> Iterator[object]:
    """Yield what writes the record, and what GitHub Actions and Kubernetes read."""
    if (path := ReportOptions.of(job).report) is not None:
        from mcjax_launch.features.report.report_file import ReportWriter

        yield ReportWriter(path, job, words(), say, job.quiet)
    if not has_client and os.path.isfile(_TERMINATION_LOG):
        from mcjax_launch.features.report.termination import TerminationMessage

        yield TerminationMessage(_TERMINATION_LOG)
    if job.on_github:
        from mcjax_launch.features.report.github import Annotations

        yield Annotations(os.environ.get("GITHUB_WORKSPACE") or os.getcwd())


REMINDER = "--report keeps a record of the run"

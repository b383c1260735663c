"""--jobs: the list of detached jobs, as a table or as JSON lines."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence

from mcjax_launch.features.detached.jobs import LOST, DetachedJob, find_all_jobs
from mcjax_launch.wording import cut_end, escape_unprintable

_COLUMNS = ("ID", "STATE", "RANKS", "HOSTS", "SINCE", "PROGRAM", "LAST LINE")
# Characters: a terminal has room for the last line too.
_MOST_PROGRAM, _MOST_HOSTS = 20, 16
# Of a file or a pipe the lines are not cut.
_WIDE = 10_000


def list_jobs(*, as_json: bool) -> int:
    """Print the detached jobs; return the exit status.

    Raises:
        LaunchError: the folder of the jobs cannot be read, or is open to other users.

    """
    jobs = find_all_jobs()
    if as_json:
        sys.stdout.write("".join(f"{json.dumps(collect_fields(job))}\n" for job in jobs))
        return 0
    if not jobs:
        sys.stderr.write("mcjax-launch: no detached jobs: --detach starts one\n")
        return 0
    width = shutil.get_terminal_size((_WIDE, 0)).columns if sys.stdout.isatty() else _WIDE
    sys.stdout.write(
        "".join(f"{line[:width]}\n" for line in format_table([_format_row(job) for job in jobs]))
    )
    return 0


def collect_fields(job: DetachedJob) -> dict[str, object]:
    """Return the fields that --json prints for a job."""
    description, end = job.description, job.end
    return {
        "id": job.id,
        "program": list(description.program),
        "state": job.state,
        "exit_status": None if end is None else end.exit_status,
        "message": "" if end is None else "; ".join(filter(None, (end.message, end.dropped))),
        "ranks": description.ranks,
        "hosts": list(description.hosts),
        "since": description.since,
        "last_line": job.last_line,
        "launcher_host": description.host,
        "launcher_pid": description.pid if job.is_reachable else None,
    }


def _format_row(job: DetachedJob) -> list[str]:
    description = job.description
    state, words = _describe_state(job)
    return [
        job.id,
        state,
        str(description.ranks),
        cut_end(escape_unprintable(",".join(description.hosts)), _MOST_HOSTS),
        _format_since(description.since),
        cut_end(escape_unprintable(shlex.join(description.program)), _MOST_PROGRAM),
        escape_unprintable(words or job.last_line),
    ]


def _describe_state(job: DetachedJob) -> tuple[str, str]:
    """Return a job's state, and words that say more than its last line; "" for no words."""
    if job.end is None:
        host = job.description.host
        return (job.state, "") if job.is_here else ("unknown", f"its launcher is on {host}")
    if job.state == LOST:
        return job.state, job.end.message
    return f"{job.state} ({job.end.exit_status})", job.end.message if job.end.exit_status else ""


def _format_since(at: float) -> str:
    began = time.localtime(at)
    today = time.localtime()[:3] == began[:3]
    return time.strftime("%H:%M:%S" if today else "%m-%d %H:%M", began)


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines with aligned columns, after a line of headings."""
    whole = [_COLUMNS, *rows]
    widths = [max(len(row[i]) for row in whole) for i in range(len(_COLUMNS))]
    return [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        for row in whole
    ]

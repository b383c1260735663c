"""How a rank is named on the console, and where its log files are; pure."""

import os
from dataclasses import dataclass

from mcjax_launch.job import placeholders
from mcjax_launch.job.plan import Plan


@dataclass(frozen=True)
class RankLabel:
    """A rank as the console names it.

    Args:
        host: its host, where there are several.
        folder: of its log files, if it has any.

    """

    process_id: int
    host: str = ""
    folder: str | None = None

    def log(self, end: str) -> str:
        """The path of a log file: `end` is "out" or "err"."""
        assert self.folder is not None
        return os.path.join(self.folder, f"{self.process_id}.{end}")


def labels(plan: Plan, log_dir: str | None) -> list[RankLabel]:
    """The label of each rank.

    Args:
        log_dir: where the log files go, if anywhere; may hold placeholders.

    """
    several = len(plan.hosts) > 1
    return [
        RankLabel(
            rank.process_id,
            rank.host.name if several else "",
            os.path.abspath(placeholders.fill(log_dir, rank.values)) if log_dir else None,
        )
        for rank in plan.ranks
    ]


def common_folder(named: list[RankLabel]) -> str | None:
    """The folder that holds all logs, for the report."""
    folders = [label.folder for label in named if label.folder is not None]
    return os.path.commonpath(folders) if folders else None

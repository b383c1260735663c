"""Progress of a test in all ranks of a group, and reasons to stop waiting for them; pure."""

import enum
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from mcjax_launch.api.call_progress import compute_grace_s


class Early(enum.Enum):
    """Reason to end a test before all ranks have finished it."""

    CRASHED = enum.auto()  # a process is gone
    STUCK = enum.auto()  # a rank has failed, and the other ranks report nothing
    TIMED_OUT = enum.auto()


class TimeLimit(NamedTuple):
    """Time limit of a test.

    Args:
        seconds: seconds from the start of the test in the ranks.
        source: name of the setting or mark that sets the limit.

    """

    seconds: float
    source: str


class RanksProgress:
    """Progress of a test while it runs.

    Args:
        ranks: numbers of the ranks that run it.
        limit: time limit of the test; None for no limit.
        now: time of time.monotonic(), as in all methods.

    Attributes:
        reports: each rank's reports, in order of arrival.
        troubled: ranks that reported anything but a pass, in order of their first such report.
        done: ranks that have finished the test.
        gone: ranks whose processes have ended, in order of their ends.
        seconds: running time of the test at the latest call of `find_reason_to_end`.
        exit: reason and status of a rank's call of `pytest.exit`; None without a call.

    """

    def __init__(self, ranks: Iterable[int], limit: TimeLimit | None, now: float) -> None:
        self.reports: dict[int, list[pytest.TestReport]] = {rank: [] for rank in ranks}
        self.troubled: list[int] = []
        self.done: set[int] = set()
        self.gone: list[int] = []
        self.seconds = 0.0
        self.exit: tuple[str, int | None] | None = None
        self.limit = limit
        self._began = now
        self._last_report = now

    @property
    def running(self) -> list[int]:
        """Ranks that have neither finished the test nor ended."""
        return sorted(self.reports.keys() - self.done - set(self.gone))

    @property
    def complete(self) -> bool:
        """True if all ranks have finished the test."""
        return self.done >= self.reports.keys()

    def record_report(self, rank: int, report: pytest.TestReport, now: float) -> None:
        """Record a rank's report of a phase."""
        self.reports[rank].append(report)
        self._last_report = now
        if not report.passed and rank not in self.troubled:
            self.troubled.append(rank)

    def set_limit(self, seconds: float, now: float) -> None:
        """Set pytest-timeout's limit for the test function alone: `seconds` from now."""
        whole = now - self._began + seconds
        if self.limit is None or whole < self.limit.seconds:
            self.limit = TimeLimit(whole, "pytest-timeout")

    @property
    def grace_s(self) -> float:
        """Seconds that the other ranks may run on after a rank has reported a failure."""
        return compute_grace_s(self._last_report - self._began)

    @property
    def deadline(self) -> float | None:
        """Time at which `find_reason_to_end` may change without a report; None if it cannot."""
        ends = [self._began + self.limit.seconds] if self.limit is not None else []
        if self._some_are_waited_for:
            ends.append(self._last_report + self.grace_s)
        return min(ends, default=None)

    @property
    def _some_are_waited_for(self) -> bool:
        settled = {*self.troubled, *self.done, *self.gone}
        return bool(self.troubled) and bool(self.reports.keys() - settled)

    def find_reason_to_end(self, now: float) -> Early | None:
        """Return the reason to end the test now; None if there is none."""
        self.seconds = now - self._began
        if self.gone:
            return Early.CRASHED
        if self.limit is not None and self.running and now >= self._began + self.limit.seconds:
            return Early.TIMED_OUT
        if self._some_are_waited_for and now >= self._last_report + self.grace_s:
            return Early.STUCK
        return None

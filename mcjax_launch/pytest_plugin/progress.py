"""One test under way in all ranks of a group: what has come, and when to wait no longer; pure."""

import enum
from collections.abc import Iterable
from typing import NamedTuple

import pytest

# How long the others get when a rank has failed: they may fail too, or wait for it for ever. They
# do the same work, so whoever fails late may fail later than others.
_GRACE_S = 1.0
_GRACE_SHARE = 0.5
_MOST_GRACE_S = 5.0


class Early(enum.Enum):
    """Why a test is ended before all ranks have done it."""

    CRASHED = enum.auto()  # a process is gone
    STUCK = enum.auto()  # a rank has failed, others do not come
    TIMED_OUT = enum.auto()


class TimeLimit(NamedTuple):
    """How long a test may take.

    Args:
        seconds: from its start in the ranks.
        source: where that is set.

    """

    seconds: float
    source: str


class RanksProgress:
    """What is known of a test while it runs.

    Args:
        ranks: all that run it.
        limit: None for no limit.
        now: time.monotonic(), as in all methods.

    Attributes:
        reports: of each rank, in the order in which they came.
        troubled: the ranks that reported anything but a pass, in the order in which they did.
        done: the ranks that are through.
        gone: the ranks whose process has ended, in that order.
        seconds: how long it had run when `early` was last asked.
        exit: the reason and the status with which a rank has called `pytest.exit`.

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
        """The ranks that are not through."""
        return sorted(self.reports.keys() - self.done - set(self.gone))

    @property
    def complete(self) -> bool:
        """Whether all ranks are through."""
        return self.done >= self.reports.keys()

    def reported(self, rank: int, report: pytest.TestReport, now: float) -> None:
        """A phase is over in a rank."""
        self.reports[rank].append(report)
        self._last_report = now
        if not report.passed and rank not in self.troubled:
            self.troubled.append(rank)

    def limited(self, seconds: float, now: float) -> None:
        """From now on it may take so long: pytest-timeout's limit, for the function alone."""
        whole = now - self._began + seconds
        if self.limit is None or whole < self.limit.seconds:
            self.limit = TimeLimit(whole, "pytest-timeout")

    @property
    def grace_s(self) -> float:
        """How long ranks that have not reported a failure may go on when others have."""
        return min(_GRACE_S + _GRACE_SHARE * (self._last_report - self._began), _MOST_GRACE_S)

    @property
    def deadline(self) -> float | None:
        """When `early` may change by itself."""
        ends = [self._began + self.limit.seconds] if self.limit is not None else []
        if self._some_are_waited_for:
            ends.append(self._last_report + self.grace_s)
        return min(ends, default=None)

    @property
    def _some_are_waited_for(self) -> bool:
        settled = {*self.troubled, *self.done, *self.gone}
        return bool(self.troubled) and bool(self.reports.keys() - settled)

    def early(self, now: float) -> Early | None:
        """Why to end the test now; None if there is no reason."""
        self.seconds = now - self._began
        if self.gone:
            return Early.CRASHED
        if self.limit is not None and self.running and now >= self._began + self.limit.seconds:
            return Early.TIMED_OUT
        if self._some_are_waited_for and now >= self._last_report + self.grace_s:
            return Early.STUCK
        return None

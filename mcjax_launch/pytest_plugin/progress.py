"""One test under way in all ranks of a group: what has come, and when to wait no longer; pure."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from mcjax_launch.pytest_plugin import messages

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
    MISSING = enum.auto()  # it was not collected in some or all ranks


@dataclass(frozen=True)
class Limit:
    """How long a test may take.

    Args:
        seconds: from its start in the ranks.
        source: where that is set.

    """

    seconds: float
    source: str


class Progress:
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
        missing: the ranks that have not collected it, with the errors of their collection.

    """

    def __init__(self, ranks: Iterable[int], limit: Limit | None, now: float) -> None:
        self.reports: dict[int, list[pytest.TestReport]] = {rank: [] for rank in ranks}
        self.troubled: list[int] = []
        self.done: set[int] = set()
        self.gone: list[int] = []
        self.missing: dict[int, tuple[str, ...]] = {}
        self.exit: messages.Exit | None = None
        self.limit = limit
        self._began = now
        self._last_report = now

    @property
    def running(self) -> list[int]:
        """The ranks that are not through."""
        return sorted(self.reports.keys() - self.done - set(self.gone))

    def reported(self, rank: int, report: pytest.TestReport, now: float) -> None:
        """A phase is over in a rank."""
        self.reports[rank].append(report)
        self._last_report = now
        if not report.passed and rank not in self.troubled:
            self.troubled.append(rank)

    def received(self, rank: int, message: object, now: float) -> None:
        """A rank says something else; None: its process is gone."""
        match message:
            case None:
                self.gone.append(rank)
            case messages.Done():
                self.done.add(rank)
            case messages.Missing(errors):
                self.missing[rank] = errors
                self.troubled.append(rank)
            case messages.Exit():
                self.exit = self.exit or message
                self.troubled.append(rank)
            case messages.Limit(seconds):
                whole = None if seconds is None else now - self._began + seconds
                if whole is not None and (self.limit is None or whole < self.limit.seconds):
                    self.limit = Limit(whole, "pytest-timeout")

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
        if self.gone:
            return Early.CRASHED
        if self.limit is not None and self.running and now >= self._began + self.limit.seconds:
            return Early.TIMED_OUT
        if self._some_are_waited_for and now >= self._last_report + self.grace_s:
            return Early.MISSING if self.missing else Early.STUCK
        return None

    @property
    def complete(self) -> bool:
        """Whether all ranks are through."""
        return self.done >= self.reports.keys()

"""The plugin in the user's pytest: sends marked tests to their group, and reports what came of it.

Pytest's own protocol is taken over as a whole for such a test: its fixtures are set up in the ranks
alone. All else, from the collection to the cache, is pytest's own here, and sees usual reports.
"""

import importlib
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest
from _pytest.runner import CallInfo

from mcjax_launch.options.kinds import duration
from mcjax_launch.pytest_plugin import marks
from mcjax_launch.pytest_plugin.endings import ended_early
from mcjax_launch.pytest_plugin.groups import RankGroup, RankGroups, StartFailed
from mcjax_launch.pytest_plugin.merge import EarlyEnd, merged
from mcjax_launch.pytest_plugin.progress import Early, RanksProgress, TimeLimit


class Controller:
    """Runs the marked tests of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._groups = RankGroups(config, self._files)
        self._after: dict[pytest.Item, pytest.Item] = {}
        self._of_shape: dict[marks.Shape, list[pytest.Item]] = {}
        self._of_pytest_timeout: dict[str, float] = {}
        self._warned: set[tuple[Any, ...]] = set()
        # A worker of pytest-xdist does not know what it will be given.
        self._is_worker = hasattr(config, "workerinput")

    # --- before the tests ---

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            marked = marks.read(item)
            if marked is not None and item.get_closest_marker("skip") is None:
                same = self._of_shape.setdefault(marked.shape, [])
                if same:
                    self._after[same[-1]] = item
                same.append(item)

    @pytest.hookimpl(wrapper=True, trylast=True)  # inside of pytest-cov's, which then combines
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._groups.close()

    def _files(self, shape: marks.Shape) -> Sequence[str]:
        return list(dict.fromkeys(str(item.path) for item in self._of_shape.get(shape, ())))

    # --- a test ---

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        marked = marks.read(item)
        if marked is None or item.get_closest_marker("skip") is not None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        following = nextitem if self._is_worker else self._after.get(item)
        for report in [*self._reports(item, following, marked), *_torn_down(item, nextitem)]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(
        self, item: pytest.Item, following: pytest.Item | None, marked: marks.Marked
    ) -> list[pytest.TestReport]:
        limit = self._limit(item, marked)
        try:
            group = self._groups.ready(marked.shape)
        except StartFailed as failure:
            what, *why = failure.args
            nothing = RanksProgress(range(marked.shape.processes), limit, 0)
            told = EarlyEnd("NotStarted", what, frozenset(), "", True, 0, [("why", why)], {})
            return merged(item, nothing, told)
        progress = RanksProgress(range(marked.shape.processes), limit, time.monotonic())
        ended = None
        try:
            group.send((item.nodeid, item.location, _shared(item, following)))
            early = self._wait(group, progress)
            if early is not None:
                ended = ended_early(group, progress, early)
        except BaseException:  # Ctrl-C: the ranks may be anywhere
            self._groups.replace(group)
            raise
        if ended is not None:
            self._groups.replace(group)
        elif following is None and not self._is_worker:
            self._groups.retire(marked.shape)
        if progress.exit is not None:
            pytest.exit(*progress.exit)
        return merged(item, progress, ended)

    def _wait(self, group: RankGroup, progress: RanksProgress) -> Early | None:
        """Wait until all ranks are through, or the test has to be ended."""
        while not progress.complete:
            now = time.monotonic()
            early = progress.early(now)
            if early is not None:
                return early
            deadline = progress.deadline
            for rank, message in group.receive(None if deadline is None else deadline - now):
                self._received(rank, message, progress)
        return None

    def _received(
        self, rank: int, message: tuple[str, Any] | None, progress: RanksProgress
    ) -> None:
        match message:
            case None:
                progress.gone.append(rank)
            case "done", _:
                progress.done.add(rank)
            case "report", data:
                hook = self._config.hook
                report = hook.pytest_report_from_serializable(config=self._config, data=data)
                progress.reported(rank, report, time.monotonic())
            case "limit", seconds:
                progress.limited(seconds, time.monotonic())
            case "warning", warning if warning not in self._warned:  # once for all ranks
                self._warned.add(warning)
                self._warn(*warning)
            case "exit", how:
                progress.exit = progress.exit or how
                progress.troubled.append(rank)

    def _warn(
        self, category: tuple[str, str], text: str, filename: str, lineno: int, nodeid: str
    ) -> None:
        """Show a warning of a rank as pytest shows its own."""
        module, name = category
        try:
            message = getattr(importlib.import_module(module), name)(text)
        except Exception:  # it is not to be had here, or takes other arguments
            message = UserWarning(f"{name}: {text}")
        shown = warnings.WarningMessage(message, type(message), filename, lineno)
        told = {"warning_message": shown, "when": "runtest", "nodeid": nodeid, "location": None}
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=told)

    # --- limits ---

    def _limit(self, item: pytest.Item, marked: marks.Marked) -> TimeLimit | None:
        own = _own_limit(self._config, marked)
        outer = self._of_pytest_timeout.get(item.nodeid)
        if outer is not None and (not own.seconds or outer < own.seconds):
            return TimeLimit(outer, "pytest-timeout")
        return own if own.seconds else None

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> object:
        """Keep pytest-timeout's limit ourselves: its own would show where this process waits."""
        if item.get_closest_marker(marks.NAME) is None:
            return None
        self._of_pytest_timeout[item.nodeid] = settings.timeout
        return True


def _own_limit(config: pytest.Config, marked: marks.Marked) -> TimeLimit:
    if marked.timeout_s is not None:
        return TimeLimit(marked.timeout_s, "timeout of the mark")
    try:
        return TimeLimit(duration(config.getini("mcjax_timeout")), "mcjax_timeout")
    except ValueError as error:
        raise pytest.UsageError(f"mcjax_timeout: {error}") from None


def _shared(item: pytest.Item, following: pytest.Item | None) -> int:
    """How many of the nodes above a test are above the next one as well."""
    if following is None:
        return 0
    pairs = zip(item.listchain(), following.listchain(), strict=False)
    return sum(one is other for one, other in pairs)


def _torn_down(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
    """Tear down the fixtures of tests before this one that ran here; a report where that fails."""
    call = CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(nextitem), when="teardown"
    )
    if call.excinfo is not None:
        yield item.ihook.pytest_runtest_makereport(item=item, call=call)

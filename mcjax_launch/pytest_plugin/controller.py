"""The plugin in the user's pytest: sends marked tests to their group, and reports what came of it.

Pytest's own protocol is taken over as a whole for such a test: its fixtures are set up in the ranks
alone. All else, from the collection to the cache, is pytest's own here, and sees usual reports.
"""

import contextlib
import importlib
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest
from _pytest.runner import CallInfo
from _pytest.skipping import evaluate_xfail_marks

from mcjax_launch.pytest_plugin import marks, merge, messages
from mcjax_launch.pytest_plugin.endings import ended_early
from mcjax_launch.pytest_plugin.group import Group, StartFailed
from mcjax_launch.pytest_plugin.groups import Groups
from mcjax_launch.pytest_plugin.progress import Early, Limit, Progress


class Controller:
    """Runs the marked tests of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._groups = Groups(config, self._files)
        self._after: dict[pytest.Item, pytest.Item] = {}
        self._of_shape: dict[marks.Shape, list[pytest.Item]] = {}
        self._of_pytest_timeout: dict[str, float] = {}

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
        if self._config.option.setupplan or item.get_closest_marker("skip") is not None:
            return None
        marked = marks.read(item)
        if marked is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in [*self._reports(item, nextitem, marked), *_torn_down(item, nextitem)]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(
        self, item: pytest.Item, nextitem: pytest.Item | None, marked: marks.Marked
    ) -> list[pytest.TestReport]:
        following = nextitem if hasattr(self._config, "workerinput") else self._after.get(item)
        named = _named(item)
        try:
            group = self._groups.ready(marked.shape)
        except StartFailed as failure:
            lines = str(failure).splitlines()
            why = merge.Ended(
                "NotStarted", lines[0], frozenset(), "", by_itself=True, said=lines[1:]
            )
            nothing = dict.fromkeys(range(marked.shape.processes), ())
            return merge.merged(named, merge.Results(nothing, (), why))
        began = time.monotonic()
        progress = Progress(range(marked.shape.processes), self._limit(item, marked), began)
        with self._ended_on_interrupt(group):
            group.send(messages.Run(item.nodeid, _shared(item, following)))
            early = self._wait(group, progress)
        seconds = time.monotonic() - began
        ended = None
        if early is not None:
            ended = ended_early(group, progress, early)
        if early is not None and not progress.complete:
            self._groups.replace(group)
        elif following is None and not hasattr(self._config, "workerinput"):
            self._groups.retire(marked.shape)
        if progress.exit is not None:
            pytest.exit(progress.exit.reason, progress.exit.status)
        results = merge.Results(progress.reports, progress.troubled, ended, seconds)
        return merge.merged(named, results)

    @contextlib.contextmanager
    def _ended_on_interrupt(self, group: Group) -> Iterator[None]:
        """A Ctrl-C ends the group, whose ranks may be anywhere."""
        try:
            yield
        except BaseException:
            self._groups.replace(group)
            raise

    def _wait(self, group: Group, progress: Progress) -> Early | None:
        """Wait until all ranks are through, or the test has to be ended."""
        told: set[messages.Warned] = set()
        while not progress.complete:
            now = time.monotonic()
            early = progress.early(now)
            if early is not None:
                return early
            for rank, message in group.receive(progress.deadline):
                if isinstance(message, messages.Report):
                    hook = self._config.hook
                    report = hook.pytest_report_from_serializable(
                        config=self._config, data=message.data
                    )
                    progress.reported(rank, report, time.monotonic())
                elif isinstance(message, messages.Warned):
                    if message not in told:  # once for all ranks
                        self._warn(message)
                    told.add(message)
                else:
                    progress.received(rank, message, time.monotonic())
        return Early.MISSING if progress.missing else None

    def _warn(self, warned: messages.Warned) -> None:
        """Show a warning of a rank as pytest shows its own."""
        module, name = warned.category
        category: Any = UserWarning
        with contextlib.suppress(ImportError, AttributeError):
            category = getattr(importlib.import_module(module), name)
        try:
            message = category(warned.text)
        except Exception:  # it takes other arguments
            message, category = UserWarning(f"{name}: {warned.text}"), UserWarning
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={
                "warning_message": warnings.WarningMessage(
                    message, category, warned.filename, warned.lineno
                ),
                "when": "runtest",
                "nodeid": warned.nodeid,
                "location": None,
            }
        )

    # --- limits ---

    def _limit(self, item: pytest.Item, marked: marks.Marked) -> Limit | None:
        own = Limit(*_own_limit(self._config, marked))
        outer = self._of_pytest_timeout.get(item.nodeid)
        if outer is not None and (not own.seconds or outer < own.seconds):
            return Limit(outer, "pytest-timeout")
        return own if own.seconds else None

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> object:
        """Keep pytest-timeout's limit ourselves: its own would show where this process waits."""
        if item.get_closest_marker(marks.NAME) is None:
            return None
        self._of_pytest_timeout[item.nodeid] = settings.timeout
        return True


def _own_limit(config: pytest.Config, marked: marks.Marked) -> tuple[float, str]:
    if marked.timeout_s is not None:
        return marked.timeout_s, "timeout of the mark"
    text = config.getini("mcjax_timeout")
    try:
        seconds = float(text)
    except ValueError:
        raise pytest.UsageError(f"mcjax_timeout={text}: not a number of seconds") from None
    return seconds, "mcjax_timeout"


def _named(item: pytest.Item) -> merge.Item:
    def expected() -> str | None:
        xfail = evaluate_xfail_marks(item)
        if xfail is None or xfail.raises is not None or item.config.option.runxfail:
            return None
        return xfail.reason

    return merge.Item(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), expected)


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

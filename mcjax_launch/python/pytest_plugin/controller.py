"""Plugin in the user's pytest: makes a call of each marked test, and reports what became of it.

For a marked test this replaces pytest's whole protocol, because its fixtures are set up in the
ranks alone. Everything else, from collection to cache, is pytest's own and sees usual reports.
"""

import importlib
import re
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pytest
from _pytest.runner import CallInfo
from _pytest.skipping import evaluate_xfail_marks, xfailed_key

from mcjax_launch.explain.jax_messages.noise import without_noise
from mcjax_launch.options.kinds import parse_duration
from mcjax_launch.python import CallFailed, JobFailed, LaunchError
from mcjax_launch.python.pytest_plugin import marks
from mcjax_launch.python.pytest_plugin.compiled import CompiledPrograms
from mcjax_launch.python.pytest_plugin.in_rank import NotCollected, Ran, TestFailed
from mcjax_launch.python.pytest_plugin.ranks import RanksByShape, RanksNotStarted, TimedOut

_STRICT = "[XPASS(strict)]"
_RAISED = f"raised {TestFailed.__module__}.{TestFailed.__qualname__}: "
# Lines of a crash: faulthandler's, of which the launcher tells the user's.
_DUMPED = ("|   File ", "| Extension modules: ")
Reports = list[pytest.TestReport]


class Controller:
    """Plugin that runs the marked tests of a session."""

    def __init__(self, config: pytest.Config, compiled: CompiledPrograms) -> None:
        self._config = config
        self._ranks = RanksByShape(config, self._list_files, compiled)
        self._after: dict[pytest.Item, pytest.Item] = {}
        self._of_shape: dict[marks.Shape, list[pytest.Item]] = {}
        self._began = 0.0  # of the running test
        # A worker of pytest-xdist does not know what it will be given.
        self._is_worker = hasattr(config, "workerinput")

    # --- before the tests ---

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            marked = marks.find(item)
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
            self._ranks.close()

    def _list_files(self, shape: marks.Shape) -> Sequence[str]:
        return list(dict.fromkeys(str(item.path) for item in self._of_shape.get(shape, ())))

    # --- a test ---

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        marked = marks.find(item)
        if marked is None or item.get_closest_marker("skip") is not None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        following = nextitem if self._is_worker else self._after.get(item)
        for report in [*self._run(item, following, marked), *_tear_down(item, nextitem)]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _run(
        self, item: pytest.Item, following: pytest.Item | None, marked: marks.Marked
    ) -> Reports:
        """Run a test in its ranks; return its reports, of the first rank that has failed."""
        limit_s, source = self._choose_limit(item, marked)
        self._began = time.monotonic()
        ranks = self._ranks.get(marked.shape)
        try:
            ran = ranks.run(item.nodeid, _count_shared_nodes(item, following), limit_s)
        except RanksNotStarted as error:
            return self._fail(item, "setup", f"the ranks could not be started: {error}")
        except TimedOut as error:
            still = f"the ranks were still running after {limit_s:g} s ({source})"
            return self._fail(item, "call", still, ("stacks", "\n".join(error.stacks)))
        except CallFailed as error:
            return self._report_failure(item, error, marked.shape.processes)
        except JobFailed as error:
            lines = error.result.root_cause.lines[1:] if error.result.root_cause else ()
            return self._fail(
                item, "call", error.result.message, ("job", _join_without_dump(lines))
            )
        except LaunchError as error:
            return self._fail(item, "call", str(error))
        finally:
            if following is None and not self._is_worker:
                self._ranks.retire(marked.shape)
        return self._restore(ran[0])

    def _report_failure(self, item: pytest.Item, error: CallFailed, count: int) -> Reports:
        found = {each.rank: each.exception for each in error.errors}
        for rank, exception in found.items():
            if isinstance(exception, pytest.exit.Exception):
                pytest.exit(exception.msg, exception.returncode)
            if isinstance(exception, KeyboardInterrupt):
                pytest.exit(f"KeyboardInterrupt in rank {rank}", pytest.ExitCode.INTERRUPTED)
            if isinstance(exception, NotCollected):
                return self._fail(
                    item, "setup", f"rank {rank} did not collect this test: {exception}"
                )
        ran = {
            rank: exception.ran
            for rank, exception in found.items()
            if isinstance(exception, TestFailed)
        }
        if not ran:
            return self._fail(item, "call", "\n".join([str(error), *error.__notes__]))
        told = _describe_ranks(error)
        first = min(ran, key=lambda rank: (get_precedence(ran[rank]), ran[rank].ended))
        if get_precedence(ran[first]) == _SKIPPED and len(ran) < count:
            told = told.replace("failed: Skipped: ", "skipped: ")
            return self._fail(item, "call", f"the ranks disagree: {told}, the others passed")
        reports = self._restore(ran[first])
        for report in reports:
            if not report.passed:
                report.sections = [
                    (f"{name}, rank {first}", _clean(s)) for name, s in report.sections
                ]
            if report.failed:
                report.sections.insert(0, ("ranks", told))
                _name_rank(report, first)
        return reports

    def _fail(self, item: pytest.Item, when: Any, text: str, *sections: tuple[str, str]) -> Reports:
        """Return the reports of a test that has failed in no rank's own words."""
        item.stash[xfailed_key] = evaluate_xfail_marks(item)

        def fail() -> None:
            raise pytest.fail.Exception(text, pytrace=False) from None

        failed = _make_report(item, when, fail)
        failed.sections += sections
        failed.duration = time.monotonic() - self._began
        return [failed, _make_report(item, "teardown", lambda: None)]  # JUnit's file needs both

    def _restore(self, ran: Ran) -> Reports:
        """Return the reports of a rank; report its warnings to pytest as those of this process."""
        hook = self._config.hook
        reports = [
            hook.pytest_report_from_serializable(config=self._config, data=data)
            for data in ran.reports
        ]
        for module, name, text, file, line in ran.warned:
            try:
                message = getattr(importlib.import_module(module), name)(text)
            except Exception:  # the class cannot be imported here, or takes other arguments
                message = UserWarning(f"{name}: {text}")
            shown = warnings.WarningMessage(message, type(message), file, line)
            told = {"warning_message": shown, "when": "runtest", "location": None}
            told["nodeid"] = reports[0].nodeid if reports else ""
            hook.pytest_warning_recorded.call_historic(kwargs=told)
        return reports

    # --- limits ---

    def _choose_limit(self, item: pytest.Item, marked: marks.Marked) -> tuple[float, str]:
        """Return the seconds that a test may take, 0 for no limit, and what has set that."""
        own, source = marked.timeout_s, "timeout of the mark"
        if own is None:
            source = "mcjax_timeout"
            try:
                own = parse_duration(self._config.getini(source))
            except ValueError as error:
                raise pytest.UsageError(f"{source}: {error}") from None
        outer = _get_pytest_timeout(item)
        if outer is not None and (not own or outer < own):
            return outer, "pytest-timeout"
        return own, source

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> object:
        """Keep pytest-timeout's timer from starting in this process."""
        return None if item.get_closest_marker(marks.NAME) is None else True


def _get_pytest_timeout(item: pytest.Item) -> float | None:
    """Return pytest-timeout's limit for a test, in seconds; None without one."""
    get_settings = getattr(sys.modules.get("pytest_timeout"), "_get_item_settings", None)
    if get_settings is None or not item.config.pluginmanager.hasplugin("timeout"):
        return None
    limit: float | None = get_settings(item).timeout
    return limit or None


_FAILED, _XFAILED, _XPASSED, _SKIPPED = range(4)


def get_precedence(ran: Ran) -> int:
    """Return which of several ranks' outcomes counts; a test fails as expected if one rank does."""
    found = []
    for data in ran.reports:
        if data["outcome"] == "failed":
            strictly = str(data["longrepr"]).startswith(_STRICT)
            found.append(_XPASSED if strictly else _FAILED)
        elif data["outcome"] == "skipped":
            found.append(_XFAILED if "wasxfail" in data else _SKIPPED)
    return min(found)


def _describe_ranks(error: CallFailed) -> str:
    """Return how ranks have failed, and where others wait for them, in a line for each."""
    told, _, _ = str(error).replace(_RAISED, "failed: ").partition(", which JAX cannot abandon")
    return re.sub(r"; (?=ranks? \d)", "\n", told)


def _name_rank(report: pytest.TestReport, rank: int) -> None:
    """Put the rank before the message shown in the short summary and in JUnit's file."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"rank {rank}: {crash.message}"


def _join_without_dump(lines: Sequence[str]) -> str:
    """Return lines of the launcher as text, without a crash's dump among a rank's last lines."""
    kept = [line for line in lines if not line.strip().startswith(_DUMPED)]
    return "\n".join(kept)


def _clean(text: str) -> str:
    """Return output without JAX's lines that have no value for the user."""
    lines, hidden = without_noise(text.splitlines())
    return text if not hidden else "".join(f"{line}\n" for line in lines)


def _make_report(item: pytest.Item, when: Any, act: Callable[[], object]) -> pytest.TestReport:
    call = CallInfo.from_call(act, when=when)
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report


def _count_shared_nodes(item: pytest.Item, following: pytest.Item | None) -> int:
    """Return the number of collection nodes above a test that the next test shares."""
    if following is None:
        return 0
    pairs = zip(item.listchain(), following.listchain(), strict=False)
    return sum(node is following_node for node, following_node in pairs)


def _tear_down(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
    """Tear down fixtures of earlier tests that ran in this process; yield a report on a failure."""
    setup: Any = item.session._setupstate
    report = _make_report(item, "teardown", lambda: setup.teardown_exact(nextitem))
    if not report.passed:
        yield report

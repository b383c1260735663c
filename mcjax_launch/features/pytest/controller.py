"""Plugin in the user's pytest: makes a call of each marked test, and reports what became of it.

For a marked test this replaces pytest's whole protocol, because its fixtures are set up in the
ranks alone. Everything else, from collection to cache, is pytest's own and sees usual reports.
"""

import builtins
import re
import sys
import time
import warnings
from collections.abc import Callable, Generator
from typing import Any

import pytest
from _pytest.runner import CallInfo
from _pytest.skipping import evaluate_xfail_marks, xfailed_key

from mcjax_launch.features.pytest import marks
from mcjax_launch.features.pytest.in_rank import NotCollected, Ran, TestFailed
from mcjax_launch.features.pytest.ranks import NotRun, RanksOfShape, read_cache_option
from mcjax_launch.features.session.client import CallFailed
from mcjax_launch.options import features as declared
from mcjax_launch.options.kinds import parse_duration
from mcjax_launch.python import JobFailed, LaunchError

_STRICT = "[XPASS(strict)]"
_RAISED = f"raised {TestFailed.__module__}.{TestFailed.__qualname__}: "
# Lines of a crash: faulthandler's, of which the launcher tells the user's.
_DUMPED = ("|   File ", "| Extension modules: ")
Reports = list[pytest.TestReport]


class Controller:
    """Plugin that runs the marked tests of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cache = read_cache_option(config)
        self._ranks: dict[marks.Shape, RanksOfShape] = {}
        self._after: dict[pytest.Item, pytest.Item] = {}  # the next test of the same shape
        self._of_shape: dict[marks.Shape, list[pytest.Item]] = {}
        self._began = 0.0  # of the running test

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
            for ranks in self._ranks.values():
                ranks.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        marked = marks.find(item)
        if marked is None or item.get_closest_marker("skip") is not None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        # A worker of pytest-xdist does not know what it will be given.
        is_worker = hasattr(self._config, "workerinput")
        following = nextitem if is_worker else self._after.get(item)
        reports = self._run(item, following, marked)
        # Fixtures of earlier tests, which ran in this process.
        setup: Any = item.session._setupstate
        torn_down = _make_report(item, "teardown", lambda: setup.teardown_exact(nextitem))
        for report in reports if torn_down.passed else [*reports, torn_down]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _run(
        self, item: pytest.Item, following: pytest.Item | None, marked: marks.Marked
    ) -> Reports:
        """Run a test in its ranks; return its reports, of the first rank that has failed."""
        limit_s, source = self._choose_limit(item, marked)
        self._began = time.monotonic()
        if marked.shape not in self._ranks:
            same = self._of_shape.get(marked.shape, [item])
            files = dict.fromkeys(str(own.path) for own in same)
            ranks = RanksOfShape(self._config, marked.shape, list(files), self._cache)
            self._ranks[marked.shape] = ranks
        shared = zip(item.listchain(), following.listchain() if following else (), strict=False)
        kept = sum(node is same for node, same in shared)
        try:
            ran = self._ranks[marked.shape].run(item.nodeid, kept, limit_s)
        except NotRun as error:
            if not error.stacks:
                return self._fail(item, error.phase, str(error))
            return self._fail(item, "call", f"{error} ({source})", ("stacks", error.stacks))
        except CallFailed as error:
            return self._report_failure(item, error, marked.shape.processes)
        except JobFailed as error:
            lines = error.result.root_cause.lines[1:] if error.result.root_cause else ()
            told = "\n".join(line for line in lines if not line.strip().startswith(_DUMPED))
            return self._fail(item, "call", error.result.message, ("job", told))
        except LaunchError as error:
            return self._fail(item, "call", str(error))
        return self._restore(ran[0])

    def _report_failure(self, item: pytest.Item, error: CallFailed, count: int) -> Reports:
        ran: dict[int, Ran] = {}
        for rank, exception in ((each.rank, each.exception) for each in error.errors):
            if isinstance(exception, pytest.exit.Exception):
                pytest.exit(exception.msg, exception.returncode)
            if isinstance(exception, KeyboardInterrupt):
                pytest.exit(f"KeyboardInterrupt in rank {rank}", pytest.ExitCode.INTERRUPTED)
            if isinstance(exception, NotCollected):
                told = f"rank {rank} did not collect this test: {exception}"
                return self._fail(item, "setup", told)
            if isinstance(exception, TestFailed):
                ran[rank] = exception.ran
        if not ran:
            return self._fail(item, "call", "\n".join([str(error), *error.__notes__]))
        told = str(error).replace(_RAISED, "failed: ").partition(", which JAX cannot abandon")[0]
        told = re.sub(r"; (?=ranks? \d)", "\n", told)
        first = min(ran, key=lambda rank: (get_precedence(ran[rank]), ran[rank].ended))
        if get_precedence(ran[first]) == _SKIPPED and len(ran) < count:
            told = told.replace("failed: Skipped: ", "skipped: ")
            return self._fail(item, "call", f"the ranks disagree: {told}, the others passed")
        reports = self._restore(ran[first])
        for report in (own for own in reports if not own.passed):
            report.sections = [(f"{name}, rank {first}", _clean(s)) for name, s in report.sections]
            if report.failed:
                report.sections.insert(0, ("ranks", told))
                if (crash := getattr(report.longrepr, "reprcrash", None)) is not None:
                    # As in the short summary, and in JUnit's file.
                    crash.message = f"rank {first}: {crash.message}"
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
        """Return the reports of a rank; repeat its warnings here, where pytest records them."""
        for name, text, file, line in ran.warned:
            warnings.warn_explicit(text, getattr(builtins, name), file, line)
        restore = self._config.hook.pytest_report_from_serializable
        return [restore(config=self._config, data=data) for data in ran.reports]

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
        get_settings = getattr(sys.modules.get("pytest_timeout"), "_get_item_settings", None)
        if get_settings is not None and self._config.pluginmanager.hasplugin("timeout"):
            outer = get_settings(item).timeout
            if outer and (not own or outer < own):
                return outer, "pytest-timeout"
        return own, source

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> object:
        """Keep pytest-timeout's timer from starting in this process."""
        return None if item.get_closest_marker(marks.NAME) is None else True


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


def _clean(text: str) -> str:
    """Return output without JAX's lines that have no value for the user."""
    if (noise := declared.load("jax_messages.noise")) is None:
        return text
    lines, hidden = noise.without_noise(text.splitlines())
    return text if not hidden else "".join(f"{line}\n" for line in lines)


def _make_report(item: pytest.Item, when: Any, act: Callable[[], object]) -> pytest.TestReport:
    call = CallInfo.from_call(act, when=when)
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report

"""Reports of the tests to run and of the first failed test: a test runner itself only exits."""

from __future__ import annotations

from ..wire.hook_messages import CollectedTests, FailedTest
from .wrapping import wrap_like

TYPE_CHECKING = False

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from ..wire.hook_messages import Raised
    from .agent_link import AgentLink

_PLUGIN = "mcjax-launch-failed-tests"
_MOST_NAME = 300


class FailedTests:
    """Count of failed tests in this process, with the exception of the first.

    Args:
        link: the link to the agent, which is told at once: the process may hang in a later test.

    Attributes:
        first: the exception of the first failed test; None if no test has failed.
        name: name of that test, as its runner writes it.
        count: number of failed tests.

    """

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self.first: Raised | None = None
        self.name = ""
        self.count = 0
        self._id = 0  # id() of the first exception

    def patch_unittest(self, result: Any) -> None:
        """Wrap the methods with which unittest, and frameworks built on it, record failures.

        Args:
            result: the module unittest.result.

        """
        for name in ("addError", "addFailure", "addSubTest"):
            real = getattr(result.TestResult, name, None)
            if real is not None:
                setattr(result.TestResult, name, self._wrap_add(real))

    def _wrap_add(self, real: Any) -> Any:
        def add(result: Any, test: Any, *args: Any) -> Any:
            of, error = (args[0] if len(args) > 1 else test), (args[-1] if args else None)
            if error is not None:  # a subtest may have succeeded
                self._add(lambda: of.id(), error[1], error[2])
            return real(result, test, *args)

        return wrap_like(real, add)

    def patch_pytest(self, config: Any) -> None:
        """Register a plugin with each run of pytest, to record failures.

        Args:
            config: the module _pytest.config.

        """
        manager = config.PytestPluginManager
        real = manager.__init__

        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            self.register(plugin, _PLUGIN)

        plugin = _Plugin(self)
        manager.__init__ = wrap_like(real, make)
        self._patch_conftest(getattr(config, "ConftestImportFailure", None))

    def _patch_conftest(self, failure: Any) -> None:
        """Record the exception of a conftest.py whose import fails: no test runs after it."""
        if failure is None:
            return
        real = failure.__init__

        def make(failed: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            real(failed, path, *args, **kwargs)
            cause = getattr(failed, "cause", None)
            if cause is not None:
                self._add(lambda: path, cause, cause.__traceback__)

        failure.__init__ = wrap_like(real, make)

    def record_pytest_failure(self, node_id: str, error: BaseException) -> None:
        """Record the failure of a test, or of a test file's import, that pytest reports."""
        if type(error).__name__ == "CollectError" and error.__cause__ is not None:
            error = error.__cause__
        error = getattr(error, "cause", None) or error  # the cause of a conftest.py's failure
        self._add(lambda: node_id, error, error.__traceback__)

    def report_collected(self, names: list[str]) -> None:
        """Report the tests that pytest is about to run, because all ranks have to run the same."""
        if names and not self._link.is_below:
            import zlib

            digest = f"{zlib.crc32(chr(10).join(names).encode('utf-8', 'replace')):08x}"
            self._link.send(CollectedTests(len(names), digest, names[0][:_MOST_NAME]))

    def as_cause(self) -> dict[str, Any]:
        """Return fields for `Failed` that name the first failed test; {} if no test has failed."""
        if self.first is None:
            return {}
        return {"handled": self.first, "test": self.name, "failed_tests": self.count}

    def _add(self, name: Any, error: BaseException, traceback: TracebackType | None) -> None:
        self.count += id(error) != self._id
        if self.first is not None:
            return
        try:
            from . import failure

            self._id = id(error)
            self.name = str(name())[:_MOST_NAME]
            self.first = failure.summarize_exception(error, traceback)
            if not self._link.is_below:  # a rank's child process is not the rank
                self._link.send(FailedTest(self.name, self.first))
        except Exception:  # the test runner must go on
            pass


class _Plugin:
    """Plugin for pytest that reports the tests to run, and records failures.

    Args:
        tests: the record of failed tests.

    """

    def __init__(self, tests: FailedTests) -> None:
        self._tests = tests

    def pytest_collection_finish(self, session: Any) -> None:
        """Report the tests, after other plugins have chosen and sorted them."""
        self._tests.report_collected([str(item.nodeid) for item in session.items])

    def pytest_exception_interact(self, call: Any, report: Any) -> None:
        """Record an exception of a test that was not skipped or expected to fail."""
        self._tests.record_pytest_failure(str(report.nodeid), call.excinfo.value)

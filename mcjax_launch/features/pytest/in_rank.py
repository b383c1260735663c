"""Pytest in ranks: one that runs the tests which a session's calls name, or the user's own."""

import os
import pdb
import shlex
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from _pytest.tmpdir import TempPathFactory

from mcjax_launch.features.pytest import marks
from mcjax_launch.wire import hook_environ

# What keeps the cache of the user's pytest.
_WRITERS = ("lfplugin", "nfplugin", "stepwiseplugin")


class Ran(NamedTuple):
    """Outcome of a test in a rank.

    Args:
        reports: pytest's reports, serialized.
        warned: warnings: name of Python's own class, text, file, line.
        ended: time of the end, in the seconds of this machine's time.monotonic().

    """

    reports: list[dict[str, Any]]
    warned: list[tuple[str, str, str, int]]
    ended: float


class TestFailed(Exception):
    """Error for a test that has not passed in this rank.

    Args:
        headline: why not, in one line.
        ran: what became of it.

    """

    __test__ = False  # no class of tests

    def __init__(self, headline: str, ran: Ran) -> None:
        super().__init__(headline, ran)
        self.ran = ran

    def __str__(self) -> str:
        return str(self.args[0])


class NotCollected(Exception):
    """Error for a test that this rank has not collected."""


def begin(settings: dict[str, Any]) -> None:
    """Collect the tests of this rank."""
    global _tests
    _tests = RankTests(settings)


def run_test(nodeid: str, kept: int) -> Ran:
    """Run a test.

    Args:
        nodeid: id of the test.
        kept: number of collection nodes above it that the next test shares.

    Raises:
        TestFailed: it has not passed.
        NotCollected: there is no such test.

    """
    return _tests.run(nodeid, kept)


def end() -> None:
    """End the pytest of this rank."""
    _tests.end()


class RankTests:
    """Tests of this rank, and a plugin of the pytest that runs them.

    Args:
        settings: settings from the user's pytest.

    """

    def __init__(self, settings: dict[str, Any]) -> None:
        sys.path[:] = settings["sys_path"]
        self._settings = settings
        self._measure = _start_coverage(settings["coverage"])
        self._errors: list[tuple[str, str]] = []
        self._reports: list[pytest.TestReport] = []
        self._warned: list[tuple[str, str, str, int]] = []
        self._nodeid = ""
        self._config = config = pytest.Config.fromdictargs(settings["options"], settings["args"])
        if settings["workerinput"] is not None:
            config.workerinput = settings["workerinput"]  # type: ignore[attr-defined]
        config.pluginmanager.register(self, marks.IN_RANK)
        # As pytest's own main does, whose loop over the tests is in the user's pytest.
        config._do_configure()
        self._session = pytest.Session.from_config(config)
        config.hook.pytest_sessionstart(session=self._session)
        config.hook.pytest_collection(session=self._session)
        self._items = {item.nodeid: item for item in self._session.items}

    def run(self, nodeid: str, kept: int) -> Ran:
        """Run a test; see `run_test`."""
        if (item := self._items.get(nodeid)) is None:
            errors = [text for above, text in self._errors if nodeid.startswith(above)]
            why = errors or ["names and parameters of tests must be the same in every process"]
            raise NotCollected("\n".join(why))
        self._nodeid = nodeid
        self._reports, self._warned = [], []
        following = None
        if kept:  # pytest keeps what is above the next test; more of that is not known here
            above: Any = item.listchain()[kept - 1]
            following = _Following.from_parent(above, name="following")
        # In a worker of pytest-xdist the next test may have been one of another shape.
        setup: Any = self._session._setupstate
        setup.teardown_exact(item)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        serialize = self._config.hook.pytest_report_to_serializable
        reports = [serialize(config=self._config, report=own) for own in self._reports]
        ran = Ran(reports, self._warned, time.monotonic())
        wrong = [own for own in self._reports if not own.passed]
        if wrong:
            raise TestFailed(_get_headline(wrong[0]), ran)
        return ran

    def end(self) -> None:
        """End pytest, and save what coverage has measured."""
        self._config.hook.pytest_sessionfinish(session=self._session, exitstatus=0)
        self._config._ensure_unconfigure()
        if self._measure is not None:
            self._measure.stop()
            self._measure.save()

    # --- the plugin ---

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        share_tmp(config, Path(self._settings["tmp"]))
        pdb.set_trace = self._refuse_breakpoint  # after pytest's own
        for name in _WRITERS:
            config.pluginmanager.unregister(name=name)

    def _refuse_breakpoint(self, *_: object, **__: object) -> NoReturn:
        __tracebackhide__ = True
        command = self._settings["in_place"]
        pytest.fail(
            f"no terminal for a debugger here; for one, run pytest itself in the ranks: {command} "
            f"-m pytest {shlex.quote(self._nodeid)}"
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors.append((report.nodeid, report.longreprtext))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str) -> None:
        if when == "runtest":  # the user's pytest has collected the same
            own = (
                base for base in warning_message.category.__mro__ if base.__module__ == "builtins"
            )
            place = (warning_message.filename, warning_message.lineno)
            self._warned.append((next(own).__name__, str(warning_message.message), *place))

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self) -> bool:
        return True  # the user's pytest holds the limits

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        return True


_tests: RankTests


def _start_coverage(how: dict[str, Any] | None) -> Any:
    """Start and return this process's coverage measurement; None if `how` is None."""
    if how is None:
        return None
    import coverage

    measure = coverage.Coverage(**how)
    measure.start()
    return measure


def _get_headline(report: pytest.TestReport) -> str:
    """Return the first line of a report's message on its failure or skip."""
    if isinstance(report.longrepr, tuple):
        message = report.longrepr[2]
    else:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = str(crash.message if crash is not None else report.longrepr or report.outcome)
    return (message.strip().splitlines() or [report.outcome])[0]


class _Following(pytest.Item):
    """Placeholder for the next test."""

    def runtest(self) -> NoReturn:
        raise NotImplementedError


# --- pytest that the user runs in the ranks of a job ---


class InPlace:
    """Plugin that runs marked tests in this process; skips those for other numbers of ranks.

    `mcjax-launch -n 2 -m pytest` runs it: there a debugger can be used.
    """

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if socket := os.environ.get(hook_environ.SOCKET):  # in the job's folder, removed with it
            share_tmp(session.config, Path(socket).parent / "pytest")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        marked, processes = marks.find(item), int(os.environ["JAX_NUM_PROCESSES"])
        if marked is None:
            return
        if marked.shape.processes != processes:
            pytest.skip(f"for {marked.shape.command}: this job has -n {processes}")
        import jax

        if not jax.distributed.is_initialized():
            jax.distributed.initialize()


class SharedTempPathFactory(TempPathFactory):  # type: ignore[misc]  # it is final
    """Factory of temporary folders that all ranks share: the n-th is the same in each rank.

    Args:
        base: folder that contains them.

    """

    def __init__(self, base: Path) -> None:
        super().__init__(
            given_basetemp=base,
            retention_count=3,
            retention_policy="all",
            trace=lambda *_: None,
            basetemp=base,
            _ispytest=True,
        )
        self._made: Counter[str] = Counter()

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        basename = self._ensure_relative_to_basetemp(basename)
        name = f"{basename}{self._made[basename]}" if numbered else basename
        self._made[basename] += 1
        path = self.getbasetemp() / name
        path.mkdir(mode=0o700, exist_ok=numbered or self._made[basename] == 1)
        return path


def share_tmp(config: pytest.Config, base: Path) -> None:
    """Make this pytest create its temporary folders in `base`."""
    base.mkdir(mode=0o700, exist_ok=True)
    config._tmp_path_factory = SharedTempPathFactory(base)  # type: ignore[attr-defined]

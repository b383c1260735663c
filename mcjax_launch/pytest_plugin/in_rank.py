"""Program of a rank: a pytest that collects tests, and runs the tests that it receives.

Its text is run by the ranks of a session, so that pytest is imported before this package and can
rewrite it. It begins with the dictionary `settings`, and receives for each test its nodeid, its
location and the number of nodes above it that the next test shares; None at the end. It sends pairs
of a word and a value. The last pair of each test, and of the collection, has the word "done".
"""

import os
import pdb
import shlex
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import _mcjax_launch.features.session.messages as caller
import pytest
from _pytest import capture

# What keeps the cache of the user's pytest.
_WRITERS = ("lfplugin", "nfplugin", "stepwiseplugin")
_PLAIN = (str, int, float, bool, type(None))


def main(settings: dict[str, Any]) -> None:
    """Run the tests that the user's pytest sends."""
    sys.path[:] = settings["sys_path"]
    measure = _start_coverage(settings["coverage"])
    try:
        _run_pytest(settings, measure)
    finally:
        if measure is not None:
            measure.stop()
            measure.save()


def _start_coverage(how: dict[str, Any] | None) -> Any:
    """Start and return this process's coverage measurement; None if `how` is None."""
    if how is None:
        return None
    import coverage

    measure = coverage.Coverage(**how)
    measure.start()
    return measure


def _run_pytest(settings: dict[str, Any], measure: Any) -> None:
    streams: list[str] = []
    capture.TemporaryFile = _make_file_maker(settings["tmp"], streams)  # type: ignore[attr-defined]
    config = pytest.Config.fromdictargs(settings["options"], settings["args"])
    # Only now: pytest rewrites the assertions of installed plugins, if they are not imported yet.
    from mcjax_launch.pytest_plugin import IN_RANK

    if settings["workerinput"] is not None:
        config.workerinput = settings["workerinput"]  # type: ignore[attr-defined]
    config.pluginmanager.register(InRank(config, settings, streams), IN_RANK)
    if measure is not None and settings["options"].get("cov_context") == "test":
        from pytest_cov.plugin import TestContextPlugin

        config.pluginmanager.register(TestContextPlugin(SimpleNamespace(cov=measure, started=True)))
    config.hook.pytest_cmdline_main(config=config)


def _make_file_maker(folder: str, made: list[str]) -> Any:
    """Return a maker of capture files with names, which it adds to `made`: stdout, then stderr."""

    def make_file(buffering: int) -> Any:
        fd, path = tempfile.mkstemp(dir=folder)
        made.append(path)
        return os.fdopen(fd, "wb+", buffering=buffering)

    return make_file


class InRank:
    """Replacement of pytest's loop over the tests, and of its output, in a rank.

    Args:
        config: configuration of this rank's pytest.
        settings: settings from the user's pytest.
        streams: names of the files with captured output, once there are any.

    """

    def __init__(self, config: pytest.Config, settings: dict[str, Any], streams: list[str]) -> None:
        self._config = config
        self._settings = settings
        self._streams = streams
        self._errors: list[tuple[str, str]] = []
        self._nodeid = ""
        self._streams_sent = settings["options"].get("capture") != "fd"

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        from mcjax_launch.pytest_plugin.in_place import share_tmp

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

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._send("done")
        while (message := self._receive()) is not None:
            nodeid, location, kept = message
            if nodeid in items:
                self._run(items[nodeid], kept)
            else:
                self.pytest_runtest_logreport(self._make_not_collected_report(nodeid, location))
            self._send("done")
        return True

    def _send(self, word: str, value: object = None) -> None:
        caller.send((word, value))

    def _receive(self) -> Any:
        try:
            return caller.receive()
        except EOFError:  # the user's pytest is gone
            return None

    def _run(self, item: pytest.Item, kept: int) -> None:
        self._nodeid = item.nodeid
        following = None
        if kept:  # pytest keeps what is above the next test; more of that is not known here
            above: Any = item.listchain()[kept - 1]
            following = _Following.from_parent(above, name="following")
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except pytest.exit.Exception as error:
            self._send("exit", (str(error.msg), error.returncode))
        except KeyboardInterrupt:
            reason = f"KeyboardInterrupt in rank {os.environ['JAX_PROCESS_ID']}"
            self._send("exit", (reason, int(pytest.ExitCode.INTERRUPTED)))

    def _make_not_collected_report(
        self, nodeid: str, location: tuple[str, int | None, str]
    ) -> pytest.TestReport:
        from mcjax_launch.pytest_plugin import reprs

        errors = [text for above, text in self._errors if nodeid.startswith(above)]
        why = "" if errors else ": names and parameters of tests must be the same in every process"
        longrepr = reprs.make_repr("NotCollected", f"did not collect this test{why}", location)
        lines = "\n".join(errors).splitlines()
        longrepr = reprs.with_sections(longrepr, [("why", lines)])
        return pytest.TestReport(nodeid, location, {}, "failed", longrepr, "setup")

    @pytest.hookimpl(trylast=True)  # inside of the capture
    def pytest_runtest_setup(self) -> None:
        if not self._streams_sent:
            self._streams_sent = True
            self._send("streams", self._streams[:2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        data["user_properties"] = [
            (name, value if isinstance(value, _PLAIN) else str(value))
            for name, value in report.user_properties
        ]
        self._send("report", data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        if when != "runtest":
            return  # the controller has collected the same
        category = warning_message.category
        name = (category.__module__, category.__name__)
        text, place = str(warning_message.message), warning_message.filename
        self._send("warning", (name, text, place, warning_message.lineno, nodeid))

    # --- pytest-timeout: the controller holds all limits ---

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Any) -> bool:
        if settings.func_only and settings.timeout is not None:
            self._send("limit", settings.timeout)
        return True

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        return True


class _Following(pytest.Item):
    """Placeholder for the next test."""

    def runtest(self) -> NoReturn:
        raise NotImplementedError


if __name__ == "__main__":
    main(globals()["settings"])

"""Program of a rank: a pytest that collects tests, and runs the tests that it receives.

It is a script, so that pytest is imported before this package and can rewrite it. It receives a
dictionary of settings, then for each test its nodeid, its location and the number of nodes above
it that the next test shares; None at the end. It sends its rank's number, then pairs of a word and
a value. The last pair of each test, and of the collection, has the word "done".
"""

import os
import pdb
import shlex
import sys
import warnings
from multiprocessing import reduction
from multiprocessing.connection import Client, Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

# What keeps the cache of the user's pytest.
_WRITERS = ("lfplugin", "nfplugin", "stepwiseplugin")
_PLAIN = (str, int, float, bool, type(None))


def main(address: str) -> None:
    """Connect to the user's pytest at a socket's path, and run the tests that it sends."""
    connection = Client(address, "AF_UNIX")
    connection.send(int(os.environ["JAX_PROCESS_ID"]))
    try:
        settings = connection.recv()
    except EOFError:  # the user's pytest is gone
        return
    sys.path[:] = settings["sys_path"]
    measure = _start_coverage(settings["coverage"])
    import jax

    jax.distributed.initialize()
    try:
        _run_pytest(connection, settings, measure)
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


def _run_pytest(connection: Connection, settings: dict[str, Any], measure: Any) -> None:
    config = pytest.Config.fromdictargs(settings["options"], settings["args"])
    # Only now: pytest rewrites the assertions of installed plugins, if they are not imported yet.
    from mcjax_launch.pytest_plugin import IN_RANK

    if settings["workerinput"] is not None:
        config.workerinput = settings["workerinput"]  # type: ignore[attr-defined]
    config.pluginmanager.register(InRank(config, connection, settings), IN_RANK)
    if measure is not None and settings["options"].get("cov_context") == "test":
        from pytest_cov.plugin import TestContextPlugin

        config.pluginmanager.register(TestContextPlugin(SimpleNamespace(cov=measure, started=True)))
    config.hook.pytest_cmdline_main(config=config)


class InRank:
    """Replacement of pytest's loop over the tests, and of its output, in a rank.

    Args:
        connection: connection to the user's pytest.
        settings: first message from the user's pytest.

    """

    def __init__(
        self, config: pytest.Config, connection: Connection, settings: dict[str, Any]
    ) -> None:
        self._config = config
        self._connection = connection
        self._settings = settings
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
        self._connection.send((word, value))

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
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
            self._send("streams")
            for fd in (1, 2):
                reduction.send_handle(self._connection, fd, 0)

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
    main(sys.argv[1])

"""The plugin of the pytest in a rank: it collects, and then runs what the controller asks for."""

import pdb
import warnings
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mcjax_launch.pytest_plugin import messages, shared_tmp
from mcjax_launch.pytest_plugin.refused import NO_BREAKPOINT


class InRank:
    """Takes the place of pytest's loop over the tests, and of its output.

    Args:
        connection: to the controller.
        settings: what it has sent.

    """

    def __init__(
        self, config: pytest.Config, connection: Connection, settings: dict[str, Any]
    ) -> None:
        self._config = config
        self._connection = connection
        self._settings = settings
        self._errors: list[str] = []
        self._streams_sent = settings["options"].get("capture") != "fd"

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        shared_tmp.share(config, Path(self._settings["tmp"]))
        pdb.set_trace = _refuse  # after pytest's own
        for name in _WRITERS:
            config.pluginmanager.unregister(name=name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors.append(report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._connection.send(messages.Ready(tuple(self._errors)))
        while True:
            try:
                message = self._connection.recv()
            except EOFError:  # the controller is gone
                return True
            if not isinstance(message, messages.Run):
                return True
            if message.nodeid in items:
                self._run(items[message.nodeid], message.kept)
            else:
                self._connection.send(messages.Missing())
            self._connection.send(messages.Done())

    def _run(self, item: pytest.Item, kept: int) -> None:
        following = None
        if kept:  # pytest keeps what is above the next test; more of that is not known here
            above: Any = item.listchain()[kept - 1]
            following = _Following.from_parent(above, name="following")
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except pytest.exit.Exception as error:
            self._connection.send(messages.Exit(str(error.msg), error.returncode))

    @pytest.hookimpl(trylast=True)  # inside of the capture
    def pytest_runtest_setup(self) -> None:
        if not self._streams_sent:
            self._streams_sent = True
            self._connection.send(messages.Streams())
            for fd in (1, 2):
                reduction.send_handle(self._connection, fd, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        data["user_properties"] = [
            (name, value if isinstance(value, _PLAIN) else str(value))
            for name, value in report.user_properties
        ]
        self._connection.send(messages.Report(data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        if when != "runtest":
            return  # the controller has collected the same
        category = warning_message.category
        self._connection.send(
            messages.Warned(
                (category.__module__, category.__qualname__),
                str(warning_message.message),
                warning_message.filename,
                warning_message.lineno,
                nodeid,
            )
        )

    # --- pytest-timeout: the controller holds all limits ---

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Any) -> bool:
        if settings.func_only:
            self._connection.send(messages.Limit(settings.timeout))
        return True

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        return True


# What keeps the cache of the user's pytest.
_WRITERS = ("lfplugin", "nfplugin", "stepwiseplugin")
_PLAIN = (str, int, float, bool, type(None))


class _Following(pytest.Item):
    """Stands for the next test."""

    def runtest(self) -> NoReturn:
        raise NotImplementedError


def _refuse(*_: object, **__: object) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(NO_BREAKPOINT)

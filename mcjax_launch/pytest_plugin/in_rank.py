"""The plugin of the pytest in a rank: it collects, and then runs what the controller asks for."""

import os
import pdb
import shlex
import warnings
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mcjax_launch.pytest_plugin import messages, shared_tmp


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
        self._errors: list[tuple[str, str]] = []
        self._nodeid = ""
        self._streams_sent = settings["options"].get("capture") != "fd"

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        shared_tmp.share(config, Path(self._settings["tmp"]))
        pdb.set_trace = self._no_breakpoint  # after pytest's own
        for name in _WRITERS:
            config.pluginmanager.unregister(name=name)

    def _no_breakpoint(self, *_: object, **__: object) -> NoReturn:
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
        self._connection.send(messages.Ready())
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
                above = [text for nodeid, text in self._errors if message.nodeid.startswith(nodeid)]
                self._connection.send(messages.Missing(tuple(above)))
            self._connection.send(messages.Done())

    def _run(self, item: pytest.Item, kept: int) -> None:
        self._nodeid = item.nodeid
        following = None
        if kept:  # pytest keeps what is above the next test; more of that is not known here
            above: Any = item.listchain()[kept - 1]
            following = _Following.from_parent(above, name="following")
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except pytest.exit.Exception as error:
            self._connection.send(messages.Exit(str(error.msg), error.returncode))
        except KeyboardInterrupt:
            reason = f"KeyboardInterrupt in rank {os.environ['JAX_PROCESS_ID']}"
            self._connection.send(messages.Exit(reason, pytest.ExitCode.INTERRUPTED))

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

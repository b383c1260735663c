"""Groups of ranks, one per shape of tests: jobs whose ranks run the tests sent to them."""

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from mcjax_launch.api import Event, LaunchError, Result
from mcjax_launch.api.called_ranks import CalledRanks
from mcjax_launch.api.packing import pack_cell, pack_value
from mcjax_launch.pytest_plugin.compiled import CompiledPrograms
from mcjax_launch.pytest_plugin.marks import Shape

# --- options that a rank's pytest inherits from the user's ---

# Options that make a rank write, measure or show what the user's pytest does already, or end the
# collection of the ranks early. (pyargs: a rank's arguments are paths.)
_NOT_IN_RANKS: dict[str, Any] = {
    "basetemp": None,
    "cacheclear": False,
    "cov_source": [],
    "log_file": os.devnull,
    "maxfail": 0,
    "pyargs": False,
    "setupshow": False,
    "xmlpath": None,
}
# Plugins that write what the user's pytest writes, or run tests in a way of their own.
_BLOCKED = ("terminal", "rerunfailures", "flaky", "html", "json-report")
_PLAIN = (str, int, float, bool, type(None), os.PathLike)


def make_rank_options(config: pytest.Config) -> dict[str, Any]:
    """Return pytest's options for a rank: those of the user's pytest that can be sent."""
    given = {name: value for name, value in vars(config.option).items() if _is_plain(value)}
    plugins = [*(given.get("plugins") or []), *(f"no:{name}" for name in _BLOCKED)]
    place = {"rootdir": str(config.rootpath), "plugins": plugins}
    if config.inipath is not None:
        place["inifilename"] = str(config.inipath)
    taken = {**given, **_NOT_IN_RANKS, **place}
    taken.pop("file_or_dir", None)  # a rank has files of its own
    return taken


def get_worker_input(config: pytest.Config) -> dict[str, Any] | None:
    """Return pytest-xdist's input for this process; None if it is no worker of pytest-xdist."""
    given = getattr(config, "workerinput", None)
    if given is None:
        return None
    return {name: value for name, value in given.items() if _is_plain(value)}


def get_coverage_arguments(config: pytest.Config) -> dict[str, Any] | None:
    """Return the arguments of a rank's Coverage; None if pytest-cov measures nothing here."""
    controller = getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    measure = getattr(controller, "cov", None)
    if controller is None or measure is None:
        return None
    return {
        "source": controller.cov_source,
        "branch": controller.cov_branch,
        "config_file": controller.cov_config,
        "data_file": os.path.abspath(measure.config.data_file),
        "data_suffix": True,  # pytest-cov combines all that lie beside its own
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    return isinstance(value, _PLAIN)


# --- groups ---

_PROGRAM = Path(__file__).resolve().with_name("in_rank.py")
_MOST_JOINING_S = 120
_MOST_COLLECTING_S = 300.0
_MOST_ENDING_S = 20.0
_MOST_STACKS_S = 5.0
_MOST_OUTPUT = 1 << 20
# After so many failed starts in a row, a group of this shape is not started any more.
_MOST_FAILURES = 2


class StartFailed(Exception):
    """Error: the ranks cannot be started; its arguments are lines that say why."""


class RankGroup:
    """Session of ranks that each run a pytest, which waits for tests.

    Args:
        shape: shape of the job.
        settings: settings for each rank (see `in_rank.py`).
        preload: modules that are imported once for all ranks.
        compile_cache: folder with compiled programs of earlier ranks; None for none.
        shows: True if the ranks' output goes straight to the terminal.

    Raises:
        StartFailed: the job was refused before it began.

    """

    def __init__(
        self,
        shape: Shape,
        settings: Mapping[str, Any],
        preload: str,
        *,
        compile_cache: str | None,
        shows: bool,
    ) -> None:
        self.shape = shape
        self._alive = set(range(shape.processes))
        self._messages: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._streams: dict[int, list[int]] = {}
        self._said: list[str] = []
        self._says = threading.Event()
        keywords = {
            "processes": shape.processes,
            "cpu_devices": shape.cpu_devices,
            "slices": shape.slices,
            "preload": preload or "none",
            "compile_once": shape.compile_once,
            "compile_cache": None if shape.compile_once == "off" else compile_cache,
            "python": sys.executable,
            "start_timeout": _MOST_JOINING_S,
            "quiet": True,
            "echo": shows,
            "on_event": self._on_event,
        }
        source, values = _PROGRAM.read_text(), {"settings": settings}
        program = pack_cell(source, str(_PROGRAM), initializes=True, is_last=True, values=values)
        try:
            self._ranks = CalledRanks(keywords)
            self._ranks.values.on_sent = lambda rank, value: self._messages.put((rank, value))
            self._ranks.submit(program, is_last=True)
            self._job = self._ranks.job.start()
        except LaunchError as error:
            raise StartFailed("the ranks could not be started", str(error)) from None

    def _on_event(self, event: Event) -> None:
        """Record a line of the launcher, or a rank's end; called in the job's thread."""
        if event.kind == "note":
            self._said.append(event.text)
            self._says.set()
        elif event.kind == "ended" and event.rank is not None:
            self._messages.put((event.rank, None))

    # --- its start ---

    def wait_until_ready(self) -> None:
        """Wait until all ranks have collected their tests.

        Raises:
            StartFailed: a rank ended, or the collection takes too long.

        """
        ready: set[int] = set()
        while len(ready) < self.shape.processes:
            messages = self.receive(_MOST_COLLECTING_S)
            if not messages:
                raise StartFailed("collecting in the ranks takes too long", *self.request_stacks())
            if any(message is None for _, message in messages):
                raise self._make_start_error()
            ready |= {rank for rank, _ in messages}

    def _make_start_error(self) -> StartFailed:
        try:
            result = self.wait_for_result(_MOST_ENDING_S)
        except LaunchError as error:
            why: Sequence[str] = [str(error)]
        else:
            why = result.root_cause.lines if result.root_cause else [result.message]
        return StartFailed("the ranks could not be started", *why)

    # --- its tests ---

    @property
    def is_alive(self) -> bool:
        """True if all ranks run and are silent, so ready for a test."""
        return len(self._alive) == self.shape.processes and self._messages.empty()

    def send(self, message: object) -> None:
        """Send a message to all ranks."""
        self._ranks.submit(pack_value(message))

    def receive(self, seconds: float | None) -> list[tuple[int, Any]]:
        """Wait for a message; return pairs of rank and message, None if its process has ended.

        Args:
            seconds: limit of the wait; None for no limit.

        """
        try:
            rank, message = (
                self._messages.get(timeout=seconds)
                if seconds != 0
                else (self._messages.get_nowait())
            )
        except Empty:
            return []
        if message is None:
            self._alive.discard(rank)
        elif message[0] == "streams":
            self._streams[rank] = [os.open(path, os.O_RDONLY) for path in message[1]]
            for path in message[1]:
                os.unlink(path)
        return [(rank, message)]

    def read_output(self, rank: int) -> tuple[str, ...]:
        """Return a rank's stdout and stderr in its current phase of the test."""
        read = (os.pread(fd, _MOST_OUTPUT, 0) for fd in self._streams.get(rank, ()))
        return tuple(data.decode("utf-8", "replace") for data in read)

    def request_stacks(self) -> list[str]:
        """Return the launcher's account of all ranks' stacks; empty if it does not answer.

        This ends the job: the lines until its end are the stacks.
        """
        before = len(self._said)
        self._says.clear()
        self._job.send_signal(signal.SIGQUIT)
        self._says.wait(_MOST_STACKS_S)
        result = self.wait_for_result(0)
        return list(itertools.takewhile(lambda line: line != result.message, self._said[before:]))

    # --- its end ---

    def wait_for_result(self, seconds: float) -> Result:
        """Wait for the job's end and return its result; kill the ranks after `seconds`.

        Raises:
            LaunchError: the job could not be started.

        """
        try:
            return self._job.wait(seconds)
        except TimeoutError:
            self._job.stop(now=True)  # JAX ignores a SIGTERM
            return self._job.wait()

    def end(self, seconds: float = 0) -> None:
        """Wait up to `seconds` for the job's end, then kill it; close its connections and files."""
        with contextlib.suppress(LaunchError):
            self.wait_for_result(seconds)
        self._alive.clear()
        for fd in itertools.chain.from_iterable(self._streams.values()):
            os.close(fd)
        self._streams.clear()


class RankGroups:
    """Groups of a session, each started when first needed and again after a crash.

    Args:
        config: configuration of the session.
        files: function that returns the files with tests of a shape.
        compiled: folder of the programs that all ranks compile.

    """

    def __init__(
        self,
        config: pytest.Config,
        files: Callable[[Shape], Sequence[str]],
        compiled: CompiledPrograms,
    ) -> None:
        self._config = config
        self._files = files
        self._compiled = compiled
        self._groups: dict[Shape, RankGroup] = {}
        self._ending: list[RankGroup] = []
        self._failures: dict[Shape, list[StartFailed]] = {}

    def get_ready_group(self, shape: Shape) -> RankGroup:
        """Return the group of a shape, ready for tests; start it if necessary.

        Raises:
            StartFailed: the group cannot be started, or two earlier starts have failed.

        """
        group = self._groups.get(shape)
        if group is not None and group.is_alive:
            return group
        if group is not None:
            self.replace(group)
        failures = self._failures.setdefault(shape, [])
        if len(failures) >= _MOST_FAILURES:
            raise failures[-1]
        try:
            self._groups[shape] = self._start_group(shape)
        except StartFailed as failure:
            failures.append(failure)
            raise
        failures.clear()
        return self._groups[shape]

    def _start_group(self, shape: Shape) -> RankGroup:
        factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        settings = {
            "sys_path": sys.path,
            "args": list(self._files(shape)),
            "options": make_rank_options(self._config),
            "workerinput": get_worker_input(self._config),
            "coverage": get_coverage_arguments(self._config),
            "in_place": shape.command,
            "tmp": str(factory.mktemp("ranks")),
        }
        shows = self._config.getoption("capture") == "no"
        preload, cache = self._config.getini("mcjax_preload"), self._compiled.cache
        group = RankGroup(shape, settings, preload, compile_cache=cache, shows=shows)
        try:
            group.wait_until_ready()
        except BaseException:  # Ctrl-C too
            group.end()
            raise
        return group

    def retire(self, shape: Shape) -> None:
        """Ask the ranks of a shape to end, without waiting, because no tests of it are left."""
        group = self._groups.pop(shape)
        group.send(None)
        self._ending.append(group)

    def replace(self, group: RankGroup) -> None:
        """End a group at once; the next test of its shape starts a new group."""
        self._groups.pop(group.shape, None)
        group.end()

    def close(self) -> None:
        """End all groups."""
        for shape in list(self._groups):
            self.retire(shape)
        for group in self._ending:
            group.end(_MOST_ENDING_S)
        self._ending.clear()

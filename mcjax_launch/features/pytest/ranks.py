"""Ranks of tests: a session for each shape, whose calls are the tests."""

import contextlib
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from mcjax_launch.features.pytest import in_rank
from mcjax_launch.features.pytest.marks import Shape
from mcjax_launch.features.session.client import Session, session
from mcjax_launch.options.options import Options
from mcjax_launch.python import Event, JobFailed, LaunchError

_MOST_JOINING_S = 120
_MOST_COLLECTING_S = 300.0
_MOST_STACKS_S = 5.0
# Frames of a stack that are below each test.
_BELOW = re.compile(r"    \S*(?:pluggy/|_pytest/|mcjax_launch/|<frozen runpy>)")

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


class NotRun(Exception):
    """Error for a test that its ranks have not run to its end.

    Args:
        phase: "setup" or "call".
        why: why not.
        stacks: where the ranks were, as text; "" if that is not known.

    """

    def __init__(self, phase: str, why: str, stacks: str = "") -> None:
        super().__init__(why)
        self.phase = phase
        self.stacks = stacks


class RanksOfShape:
    """Ranks that run the tests of a shape, started when first needed and again after a crash.

    Args:
        config: configuration of the user's pytest.
        shape: shape of the job.
        files: files with tests of this shape.
        cache: folder for compiled programs, as --compile-cache takes it; None for none.

    """

    def __init__(
        self, config: pytest.Config, shape: Shape, files: Sequence[str], cache: str | None
    ) -> None:
        self._config = config
        self._shape = shape
        self._files = files
        self._cache = cache
        self._session: Session | None = None
        self._job: object = None  # whose ranks have collected the tests
        self._said: list[str] = []
        self._says = threading.Event()
        self._is_late = False
        self._failure: NotRun | None = None

    def run(self, nodeid: str, kept: int, limit_s: float) -> list[in_rank.Ran]:
        """Run a test in all ranks; return what became of it in each, if it has passed in all.

        Args:
            nodeid: see `in_rank.run_test`.
            kept: see `in_rank.run_test`.
            limit_s: seconds that it may take; 0 for no limit.

        Raises:
            CallFailed: it has not passed in some ranks.
            JobFailed: a rank has ended.
            NotRun: the ranks cannot be started, or the test takes too long.

        """
        ranks = self._get_ready_session()
        with self._limited(ranks, limit_s):
            return ranks.run(in_rank.run_test, (nodeid, kept))

    def _get_ready_session(self) -> Session:
        """Return the session after all its ranks have collected their tests.

        Raises:
            NotRun: that has failed; it is not tried again.

        """
        if self._failure is not None:
            raise self._failure
        try:
            ranks = self._session = self._session or self._open()
            if ranks.is_over:
                ranks.restart()
            if ranks.job is not self._job:
                with self._limited(ranks, _MOST_COLLECTING_S):
                    ranks.run(in_rank.begin, (self._make_settings(),))
                self._job = ranks.job
        except NotRun as late:
            why = "collecting in the ranks takes too long"
            self._failure = NotRun("setup", f"the ranks could not be started: {why}\n{late.stacks}")
        except LaunchError as error:
            why = "\n".join([str(error), *getattr(error, "__notes__", ())])
            self._failure = NotRun("setup", f"the ranks could not be started: {why}")
        else:
            return ranks
        raise self._failure

    def _open(self) -> Session:
        shape: Any = self._shape
        return session(
            **shape._asdict(),
            preload=self._config.getini("mcjax_preload") or "none",
            compile_cache=None if shape.compile_once == "off" else self._cache,
            python=sys.executable,
            start_timeout=_MOST_JOINING_S,
            quiet=True,
            echo=self._config.getoption("capture") == "no",
            on_event=self._on_event,
        )

    def close(self) -> None:
        """End the ranks."""
        if self._session is None:
            return
        with contextlib.suppress(LaunchError):
            if self._session.job is self._job and not self._session.is_over:
                self._session.run(in_rank.end)
        self._session.close()

    # --- what the pytest of a rank is given ---

    def _make_settings(self) -> dict[str, Any]:
        config: Any = self._config
        given = {name: value for name, value in vars(config.option).items() if _is_plain(value)}
        plugins = [*(given.get("plugins") or []), *(f"no:{name}" for name in _BLOCKED)]
        options = {**given, **_NOT_IN_RANKS, "rootdir": str(config.rootpath), "plugins": plugins}
        if config.inipath is not None:
            options["inifilename"] = str(config.inipath)
        options.pop("file_or_dir", None)  # a rank has files of its own
        worker = getattr(config, "workerinput", None)  # of pytest-xdist
        return {
            "sys_path": sys.path,
            "args": list(self._files),
            "options": options,
            "workerinput": worker and {name: v for name, v in worker.items() if _is_plain(v)},
            "coverage": _make_coverage_arguments(config),
            "in_place": self._shape.command,
            "tmp": str(config._tmp_path_factory.mktemp("ranks")),
        }

    # --- limits ---

    @contextlib.contextmanager
    def _limited(self, ranks: Session, limit_s: float) -> Iterator[None]:
        """End the ranks if a call takes longer than this, after they have shown their stacks.

        Raises:
            NotRun: it takes longer.

        """
        self._is_late = False
        self._said.clear()
        timer = threading.Timer(limit_s, self._end_late_ranks, [ranks])
        timer.daemon = True
        if limit_s:
            timer.start()
        try:
            yield
        except LaunchError as error:
            if not self._is_late:
                raise
            end = error.result.message if isinstance(error, JobFailed) else str(error)
            said = itertools.takewhile(lambda line: line != end, self._said)
            stacks = "\n".join(line for line in said if not _BELOW.match(line))
            raise NotRun(
                "call", f"the ranks were still running after {limit_s:g} s", stacks
            ) from None
        finally:
            timer.cancel()

    def _end_late_ranks(self, ranks: Session) -> None:
        self._is_late = True
        self._says.clear()
        ranks.job.send_signal(signal.SIGQUIT)
        self._says.wait(_MOST_STACKS_S)
        ranks.job.stop(now=True)

    def _on_event(self, event: Event) -> None:
        if event.kind == "note":
            self._said.append(event.text)
            self._says.set()


def _make_coverage_arguments(config: pytest.Config) -> dict[str, Any] | None:
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


def read_cache_option(config: pytest.Config) -> str | None:
    """Return --mcjax-compile-cache, else the ini setting mcjax_compile_cache, as DIR or DIR:SIZE.

    DIR becomes absolute: relative to the working directory (option) or the rootdir (setting).

    Returns:
        None if the chosen value is empty, or if neither is set.

    Raises:
        pytest.UsageError: the value names no folder, or its size is invalid.

    """
    name, value, base = "mcjax_compile_cache", config.getini("mcjax_compile_cache"), config.rootpath
    if config.option.mcjax_compile_cache is not None:
        name, value = "--mcjax-compile-cache", config.option.mcjax_compile_cache
        base = config.invocation_params.dir
    if not value:
        return None
    if (option := Options.declared.get("compile_cache")) is None:
        raise pytest.UsageError(f"{name}: this copy of mcjax-launch has no --compile-cache")
    try:
        return os.path.join(base, os.path.expanduser(option.read(value)))
    except ValueError as error:
        raise pytest.UsageError(f"{name}: {error}") from None


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    return isinstance(value, _PLAIN)

"""Ranks of tests: a session for each shape, whose calls are the tests."""

import contextlib
import itertools
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from mcjax_launch.python import Event, JobFailed, LaunchError, Session
from mcjax_launch.python.pytest_plugin import in_rank, inherited
from mcjax_launch.python.pytest_plugin.compiled import CompiledPrograms
from mcjax_launch.python.pytest_plugin.marks import Shape
from mcjax_launch.python.session import session as open_session

T = TypeVar("T")
_MOST_JOINING_S = 120
_MOST_COLLECTING_S = 300.0
_MOST_STACKS_S = 5.0
# Frames of a stack that are below each test.
_BELOW = re.compile(r"    \S*(?:pluggy/|_pytest/|mcjax_launch/|<frozen runpy>)")


class RanksNotStarted(Exception):
    """Error for ranks that cannot be started; its text says why."""


class TimedOut(Exception):
    """Error for a test that has reached its limit.

    Args:
        stacks: lines on where the ranks were.

    """

    def __init__(self, stacks: Sequence[str]) -> None:
        super().__init__()
        self.stacks = stacks


class RanksOfShape:
    """Ranks that run the tests of a shape, started when first needed and again after a crash.

    Args:
        config: configuration of the user's pytest.
        shape: shape of the job.
        files: files with tests of this shape.
        compiled: folder of the programs that all ranks compile.

    """

    def __init__(
        self, config: pytest.Config, shape: Shape, files: Sequence[str], compiled: CompiledPrograms
    ) -> None:
        self._config = config
        self._shape = shape
        self._files = files
        self._compiled = compiled
        self._session: Session | None = None
        self._job: object = None  # whose ranks have collected the tests
        self._said: list[str] = []
        self._says = threading.Event()
        self._is_late = False
        self._failure = ""

    def run(self, nodeid: str, kept: int, limit_s: float) -> list[in_rank.Ran]:
        """Run a test in all ranks; return what became of it in each, if it has passed in all.

        Args:
            nodeid: see `in_rank.run_test`.
            kept: see `in_rank.run_test`.
            limit_s: seconds that it may take; 0 for no limit.

        Raises:
            CallFailed: it has not passed in some ranks.
            JobFailed: a rank has ended.
            RanksNotStarted: the ranks cannot be started.
            TimedOut: it takes too long.

        """
        session = self._get_ready_session()
        with self._limited(session, limit_s):
            return session.run(in_rank.run_test, (nodeid, kept))

    def _get_ready_session(self) -> Session:
        """Return the session after all its ranks have collected their tests.

        Raises:
            RanksNotStarted: that has failed; it is not tried again.

        """
        if self._failure:
            raise RanksNotStarted(self._failure)
        try:
            session = self._session = self._session or self._open()
            if session.is_over:
                session.restart()
            if session.job is not self._job:
                with self._limited(session, _MOST_COLLECTING_S):
                    session.run(in_rank.begin, (self._make_settings(),))
                self._job = session.job
        except TimedOut as late:
            self._failure = "\n".join(["collecting in the ranks takes too long", *late.stacks])
        except LaunchError as error:
            self._failure = "\n".join([str(error), *getattr(error, "__notes__", ())])
        else:
            return session
        raise RanksNotStarted(self._failure)

    def _open(self) -> Session:
        shape, preload = self._shape, self._config.getini("mcjax_preload")
        return open_session(
            processes=shape.processes,
            cpu_devices=shape.cpu_devices,
            slices=shape.slices,  # type: ignore[arg-type]
            preload=preload or "none",
            compile_once=shape.compile_once,  # type: ignore[arg-type]
            compile_cache=None if shape.compile_once == "off" else self._compiled.cache,
            python=sys.executable,
            start_timeout=_MOST_JOINING_S,
            quiet=True,
            echo=self._config.getoption("capture") == "no",
            on_event=self._on_event,
        )

    def _make_settings(self) -> dict[str, Any]:
        factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        return {
            "sys_path": sys.path,
            "args": list(self._files),
            "options": inherited.make_rank_options(self._config),
            "workerinput": inherited.get_worker_input(self._config),
            "coverage": inherited.get_coverage_arguments(self._config),
            "in_place": self._shape.command,
            "tmp": str(factory.mktemp("ranks")),
        }

    def close(self) -> None:
        """End the ranks."""
        session, self._session = self._session, None
        if session is None:
            return
        with contextlib.suppress(LaunchError):
            if session.job is self._job and not session.is_over:
                session.run(in_rank.end)
        session.close()

    # --- limits ---

    @contextlib.contextmanager
    def _limited(self, session: Session, limit_s: float) -> Iterator[None]:
        """End the ranks if a call takes longer than this, after they have shown their stacks.

        Raises:
            TimedOut: it takes longer.

        """
        self._is_late = False
        self._said.clear()
        timer = threading.Timer(limit_s, self._end_late_ranks, [session])
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
            raise TimedOut([line for line in said if not _BELOW.match(line)]) from None
        finally:
            timer.cancel()

    def _end_late_ranks(self, session: Session) -> None:
        self._is_late = True
        self._says.clear()
        session.job.send_signal(signal.SIGQUIT)
        self._says.wait(_MOST_STACKS_S)
        session.job.stop(now=True)

    def _on_event(self, event: Event) -> None:
        if event.kind == "note":
            self._said.append(event.text)
            self._says.set()


class RanksByShape:
    """Ranks of a pytest session, by the shape of the tests that they run.

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
        self._ranks: dict[Shape, RanksOfShape] = {}

    def get(self, shape: Shape) -> RanksOfShape:
        """Return the ranks of a shape, which may not have been started."""
        if shape not in self._ranks:
            files = self._files(shape)
            self._ranks[shape] = RanksOfShape(self._config, shape, files, self._compiled)
        return self._ranks[shape]

    def retire(self, shape: Shape) -> None:
        """End the ranks of a shape, because no tests of it are left."""
        self._ranks.pop(shape).close()

    def close(self) -> None:
        """End all ranks."""
        for shape in list(self._ranks):
            self.retire(shape)

"""A group of ranks: one job of mcjax-launch, whose ranks wait for tests to run."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mcjax_launch.kernel.wire.system import LINUX
from mcjax_launch.pytest_plugin import messages
from mcjax_launch.pytest_plugin.marks import Shape
from mcjax_launch.pytest_plugin.meeting_point import MeetingPoint

_HERE = Path(__file__).resolve().parent
_MOST_JOINING_S = 120
_LOOK_S = 0.2
_MOST_COLLECTING_S = 300.0
# Ranks that are ended are stuck, or have nothing to do: JAX ignores SIGTERM, so this is lost time.
_GRACE_S = 0.3
_MOST_ENDING_S = 20.0
_MOST_CRASHING_S = 3.0
# The launcher takes up to 4 s for the stacks; they are complete when no more comes.
_MOST_STACKS_S = 5.0
_QUIET_S = 0.3
_SHOWN_S = 1.0
_STACKS_BEGIN = "innermost call first:"
_MOST_OUTPUT = 1 << 20


class StartFailed(Exception):
    """The ranks do not come up; says why, in several lines."""


class Group:
    """Starts the job; its ranks collect meanwhile.

    Args:
        settings: what each rank is told (see `worker.py`).
        preload: modules that they share.
        shows: whether their output goes straight to the terminal.

    """

    def __init__(
        self, shape: Shape, settings: Mapping[str, Any], preload: str, *, shows: bool
    ) -> None:
        self.shape = shape
        self._settings = settings
        self._meeting_point = MeetingPoint(shape.processes)
        self._ranks: dict[int, Connection] = {}
        self._streams: dict[int, list[int]] = {}
        self._shows = shows
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._said = 0  # bytes of it
        self._launcher = subprocess.Popen(
            self._command(preload),
            # A pipe, where nothing else tells that this process is gone.
            stdin=subprocess.DEVNULL if LINUX else subprocess.PIPE,
            stdout=None if shows else self._log,
            stderr=None if shows else self._log,
            env=_environ(os.environ),
            start_new_session=True,  # a Ctrl-C is for pytest, which ends the job
        )

    def _command(self, preload: str) -> list[str]:
        script = [sys.executable, str(_HERE / "launcher_process.py"), str(os.getpid())]
        ways = ["--python", sys.executable, "--grace", f"{_GRACE_S}s", "-q"]
        limits = ["--start-timeout", f"{_MOST_JOINING_S}s"]
        forked = ["--preload", preload] if preload else []
        program = [str(_HERE / "worker.py"), self._meeting_point.address]
        return [*script, *self.shape.options, *ways, *limits, *forked, *program]

    # --- its start ---

    def wait_until_ready(self) -> None:
        """Wait until all ranks have collected.

        Raises:
            StartFailed: they do not come so far.

        """
        self._accept()
        for connection in self._ranks.values():
            with contextlib.suppress(OSError):
                connection.send(self._settings)
        deadline = time.monotonic() + _MOST_COLLECTING_S
        ready: set[int] = set()
        while len(ready) < self.shape.processes:
            for rank, message in self.receive(deadline):
                if message is None:
                    raise self._failed("the ranks could not be started")
                if isinstance(message, messages.Ready):
                    ready.add(rank)
            if time.monotonic() >= deadline:
                where = "\n".join(self.stacks())
                self._stop()
                raise self._failed(f"collecting in the ranks takes too long\n{where}")

    def _accept(self) -> None:
        """Let all ranks connect."""
        while len(self._ranks) < self.shape.processes:
            connection = self._meeting_point.accept(_LOOK_S)
            if connection is not None:
                with contextlib.suppress(EOFError):  # it ends already; so does the job
                    self._ranks[connection.recv()] = connection
            elif self._launcher.poll() is not None:
                raise self._failed("the ranks could not be started")
        self._meeting_point.close()

    def _failed(self, what: str) -> StartFailed:
        self._wait()
        said = "\n".join(self.said())
        self.end()
        return StartFailed(f"{what}\n{said}")

    # --- its tests ---

    @property
    def is_alive(self) -> bool:
        """Whether all ranks are there, and say nothing unasked."""
        return len(self._ranks) == self.shape.processes and not wait(self._ranks.values(), 0)

    def send(self, message: messages.Run | messages.Finish, ranks: Iterable[int] = ()) -> None:
        """Send to these ranks, by default to all; one that is gone is found out by `receive`."""
        for rank in list(ranks) or list(self._ranks):
            if rank in self._ranks:
                with contextlib.suppress(OSError):
                    self._ranks[rank].send(message)

    def receive(self, deadline: float | None) -> list[tuple[int, Any]]:
        """What ranks say, as soon as one does: a message, or None where a process is gone.

        Args:
            deadline: when to wait no longer (time.monotonic()).

        """
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = set(wait(self._ranks.values(), left))
        return [
            (rank, self._received(rank))
            for rank, connection in list(self._ranks.items())
            if connection in ready
        ]

    def _received(self, rank: int) -> Any:
        connection = self._ranks[rank]
        try:
            message = connection.recv()
            if isinstance(message, messages.Streams):
                self._streams[rank] = [reduction.recv_handle(connection) for _ in range(2)]
            return message
        except (EOFError, OSError):
            connection.close()
            del self._ranks[rank]
            return None

    def output(self, rank: int) -> tuple[str, str]:
        """What a rank has written in the phase that it is in: stdout and stderr."""
        if rank not in self._streams:
            return "", ""
        out, err = (os.pread(fd, _MOST_OUTPUT, 0) for fd in self._streams[rank])
        return out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def said(self) -> list[str]:
        """What the launcher has said since it was last asked."""
        size = os.fstat(self._log.fileno()).st_size
        # The place in the file is where the launcher writes.
        data = os.pread(self._log.fileno(), size - self._said, self._said)
        self._said += len(data)
        return data.decode("utf-8", "replace").splitlines()

    def stacks(self) -> list[str]:
        """Where all ranks are, in the launcher's words; nothing if it does not answer."""
        self.said()
        self._launcher.send_signal(signal.SIGQUIT)
        if self._shows:  # on the terminal
            time.sleep(_SHOWN_S)
            return []
        deadline = time.monotonic() + _MOST_STACKS_S
        lines: list[str] = []
        quiet_since = time.monotonic()
        # Only a test that hangs comes here, so that looking again and again does no harm.
        while time.monotonic() < deadline:
            time.sleep(0.02)
            if more := self.said():
                lines += more
                quiet_since = time.monotonic()
            elif _STACKS_BEGIN in "".join(lines) and time.monotonic() - quiet_since > _QUIET_S:
                break
        return lines

    # --- its end ---

    def wait_for_crash(self) -> list[str]:
        """What the launcher says of ranks that have crashed; it ends the others.

        One that has left with status 0 is no crash to it: the others would wait for that one.
        """
        try:
            self._launcher.wait(_MOST_CRASHING_S)
        except subprocess.TimeoutExpired:
            self._stop()
        self._wait()
        return self.said()

    def finish(self) -> None:
        """Have the ranks tear down what is left, and leave; `end` waits for that."""
        self.send(messages.Finish())

    def end(self, *, at_once: bool = False) -> None:
        """Wait for the end of the job, or bring it about; nothing of it is left."""
        if at_once:
            self._stop()
        self._wait()
        for connection in self._ranks.values():
            connection.close()
        self._ranks.clear()
        for fd in [fd for fds in self._streams.values() for fd in fds]:
            os.close(fd)
        self._streams.clear()
        self._meeting_point.close()
        self._log.close()
        if self._launcher.stdin is not None:
            self._launcher.stdin.close()

    def _wait(self) -> None:
        try:
            self._launcher.wait(_MOST_ENDING_S)
        except subprocess.TimeoutExpired:
            self._stop()
            try:
                self._launcher.wait(_MOST_ENDING_S)
            except subprocess.TimeoutExpired:
                self._launcher.kill()  # the agent sees it go, and ends the ranks
                self._launcher.wait()

    def _stop(self) -> None:
        """End the ranks: the second signal kills those that do not end at once."""
        self._launcher.send_signal(signal.SIGTERM)


def _environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the launcher: options that it would take from there are another job's."""
    kept = ("MCJAX_DEBUG", "MCJAX_PORTABLE")
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("MCJAX_") or name in kept
    }

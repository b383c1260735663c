"""Launcher as a child process of this program; it ends when the program ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.machine.system import format_limit_error
from mcjax_launch.python.calls import CallChannel, move_from_standard
from mcjax_launch.transport.early import CLIENT
from mcjax_launch.wire.signals import ENDING, FORWARDED
from mcjax_launch.wire.value import Value

# The package comes from the folder that this program has it from, wherever that is; all others
# come from there only if they are nowhere else: it may hold modules named as Python's own.
_MAIN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import mcjax_launch; "
    "sys.path.append(sys.path.pop(0)); from mcjax_launch.__main__ import run; run()"
)
_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Request(Value):
    """Command line of a launcher, and the reports that this program wants from it.

    Args:
        words: arguments of the launcher's command line.
        hosts: lines of a hosts list that was not given as a file; empty if there is none.
        calls: way of calls to the ranks; None for a program.
        echoes: True if the client wants the lines that the launcher prints.
        hears_output: True if the client wants the ranks' output as events.

    """

    words: tuple[str, ...]
    hosts: tuple[str, ...]
    calls: CallChannel | None
    echoes: bool
    hears_output: bool


class LauncherProcess:
    """Launcher that this program has started, in a new session.

    Args:
        request: the launcher's command line, and the wanted reports.

    Attributes:
        events: descriptor to read the launcher's events from.
        values: descriptor to read the ranks' return values from; None without a call.
        stdout, stderr: descriptors to read its output from; stdout is None without `echoes`.

    Raises:
        LaunchError: the launcher cannot be started.

    """

    events: int
    stderr: int
    _life: int

    def __init__(self, request: Request) -> None:
        self.values: int | None = None
        self.stdout: int | None = None
        self._ours: set[int] = set()
        try:
            with contextlib.ExitStack() as theirs:
                self._process = self._start(request, theirs)
        except (OSError, ValueError) as error:  # ValueError: a null byte in a word
            self.close()
            why = format_limit_error(error) if isinstance(error, OSError) else str(error)
            raise LaunchError(f"mcjax-launch cannot be started: {why}") from None
        except BaseException:
            self.close()
            raise

    def _start(self, request: Request, theirs: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        """Start the launcher; `theirs` collects the descriptors to close here afterwards."""
        self._life, life = self._make_pipe(theirs, ours=1)
        self.events, events = self._make_pipe(theirs)
        self.stderr, stderr = self._make_pipe(theirs)
        shared, stdout = {"life": life}, subprocess.DEVNULL
        if request.echoes:
            self.stdout, stdout = self._make_pipe(theirs)
        if request.calls is not None:
            self.values, shared["values"] = self._make_pipe(theirs)
            shared["calls"] = request.calls.theirs
            theirs.callback(request.calls.close_theirs)
        wanted = {
            "echoes": request.echoes,
            "hears_output": request.hears_output,
            "hosts": request.hosts,
        }
        return subprocess.Popen(
            [*_make_command(), "--events", f"fd:{events}", *request.words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, CLIENT: json.dumps({**shared, **wanted})},
            pass_fds=(events, *shared.values()),
            start_new_session=True,
        )

    def _make_pipe(self, theirs: contextlib.ExitStack, *, ours: int = 0) -> tuple[int, int]:
        """Return both ends of a new pipe, this program's first: end `ours` (0 reads, 1 writes)."""
        first, second = os.pipe()
        ends = (move_from_standard(first), move_from_standard(second))
        self._ours.add(ends[ours])
        theirs.callback(os.close, ends[1 - ours])
        return ends[ours], ends[1 - ours]

    def send_signal(self, signum: int) -> None:
        """Send a signal to the launcher, unless it has ended."""
        self._process.send_signal(signum)

    def abandon(self) -> None:
        """End the job at once, by closing the pipe that the launcher watches for that."""
        self.forget(self._life)

    def forget(self, fd: int) -> None:
        """Close a descriptor that leads to the launcher, if it is still open."""
        try:
            self._ours.remove(fd)
        except KeyError:
            return
        os.close(fd)

    def close(self) -> None:
        """Close all descriptors that lead to the launcher."""
        for fd in list(self._ours):
            self.forget(fd)

    def wait(self) -> int:
        """Wait for the launcher's end; return its exit status as `Popen.wait` does.

        The status is 0 if this program ignores its children, or other code has waited for them.
        """
        return self._process.wait()


def hold_signals() -> None:
    """Block the signals that a launcher handles, in the thread that starts it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [*ENDING, *FORWARDED, signal.SIGQUIT])


def _make_command() -> Sequence[str]:
    """Return the command that runs the launcher with this program's Python.

    Raises:
        LaunchError: sys.executable is empty.

    """
    if not sys.executable:
        raise LaunchError("sys.executable is empty: there is no Python to run mcjax-launch with")
    return (sys.executable, "-P", "-c", _MAIN, _FOLDER)

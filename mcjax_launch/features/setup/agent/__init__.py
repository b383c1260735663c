"""The command of --setup on a host: its run at each start, and what it has changed.

Its processes are below the agent, so all of them end with the job, as ranks do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time

from ....agent.part import AgentPart, HostChanges
from ....agent.startup import choose_working_folder
from ....agent.system import system
from ....agent.system.unix import NO_INPUT, Invocation, SpawnError
from ....machine import own_paths
from ....machine.interpreter import Unusable
from ....machine.loop import READ
from ....machine.rank_environ import without_outer_job
from ....machine.system import format_limit_error
from ....wire.exit_status import HOST_LOST
from ....wire.frames import encode_message, encode_raw
from ....wire.messages import Prepare, Refused
from ..messages import NAME, WAITS, SetUp, SetupEnded
from .command import find_chosen_python, list_python_names, make_argv, make_environ, read_changes

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ....agent.part import HostAgent
    from ....wire.codec import Message
    from ....wire.frames import Raw

_PIECE = 1 << 14
_LOCK = "lock"
# Waits for the lock that its standard input is, and says so as the command's first output.
_LOCKS = f"import fcntl; print({WAITS!r}, flush=True); fcntl.flock(0, fcntl.LOCK_EX)"


class SetupCommand(AgentPart, HostChanges):
    """Part that runs the command, one job after the other on a host."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        agent.changes = self
        self._asked: SetUp
        self._folder = ""  # the command's
        self._environ: dict[str, str] = {}  # the command's
        self._changed: dict[str, str | None] = {}
        self._lock = self._out = -1
        self._left: set[int] = set()  # processes that the command has left, and their sessions
        self._child: tuple[int, Callable[[int], object]] = (-1, lambda status: None)
        self._began_at = 0.0

    def on_message(self, message: Message | Raw) -> None:
        """Run the command."""
        if not isinstance(message, SetUp) or (stage := self.agent.complete_staging()) is None:
            return
        self._asked, self._began_at = message, time.monotonic()
        try:
            folder = choose_working_folder(message.chdir, message.chdir_given, stage)
        except Unusable as error:
            self.agent.link.send(Refused(str(error), error.status))
            return
        self._folder = os.path.realpath(folder)
        self._environ = make_environ(without_outer_job(os.environ), message.env)
        if message.done is not None:
            self._end(0, message.done)
        elif message.keeps:
            self._await_lock()
        else:
            self._begin()

    def on_ranks_end(self) -> None:
        """Stop reading what processes print that the command has left running."""
        self._close()

    # --- one job after the other ---

    def _await_lock(self) -> None:
        """Run the command when no other job of this user runs one on this host."""
        try:
            folder = own_paths.make_cache_folder("setup", os.environ)
            name = f"{_LOCK}-{os.uname().nodename}"  # hosts may share the folder
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            self._lock = os.open(os.path.join(folder, name), flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._spawn([sys.executable, "-I", "-S", "-c", _LOCKS], self._lock, self._on_wait_end)
            return
        except OSError:  # no folder of one's own, or a file system without locks
            self._unlock()
        self._begin()

    def _on_wait_end(self, status: int) -> None:
        self._close()
        if self.agent.supervisor.stopping:
            return
        if status:  # it was killed, by hand
            self._end(status, {})
        else:
            self._begin()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- its run ---

    @property
    def _saved(self) -> str:
        return os.path.join(self.agent.folder, "setup-environ")

    def _begin(self) -> None:
        self._began_at = time.monotonic()
        argv = make_argv(self._asked.command, self._environ, self._saved)
        self._spawn(argv, NO_INPUT, self._on_end)

    def _spawn(self, argv: list[str], given: int, on_end: Callable[[int], object]) -> None:
        """Start a process; send its output to the launcher."""
        try:
            self._out, end = os.pipe()
            try:
                files = (given, end, end)
                pid = system.spawn(Invocation(argv, self._environ, self._folder, files))
            finally:
                os.close(end)
        except (SpawnError, OSError) as error:
            self._close()
            self._unlock()
            what = error.what if isinstance(error, SpawnError) else argv[0]
            why = format_limit_error(OSError(error.errno, os.strerror(error.errno or 0)))
            self.agent.link.send(Refused(f"--setup: {what}: {why}", HOST_LOST))
            return
        os.set_blocking(self._out, False)
        self._child = pid, on_end
        self._watch()

    def handle_end(self, pid: int, status: int) -> None:
        """Continue after the end of the command, or of the wait for the lock."""
        child, on_end = self._child
        if pid == child:
            self._child = (-1, on_end)
            on_end(status)

    def owns(self, pid: int) -> bool:
        """Return whether the command has left a process running, such as a server."""
        return not self._left.isdisjoint((pid, _get_session(pid)))

    def _watch(self) -> None:
        if self._out >= 0:
            self.agent.loop.watch(self._out, READ, lambda ready: self._read())

    def _read(self) -> bool:
        """Read some output; read on once the launcher has taken it. Return whether some came."""
        try:
            data = os.read(self._out, _PIECE)
        except BlockingIOError:
            return False
        if not data:
            self._close()
            return False
        self.agent.loop.forget(self._out)
        self.agent.link.uplink.send_later(self._make_frames(data))
        return True

    def _make_frames(self, data: bytes) -> Iterator[bytes]:
        yield encode_raw(NAME, 0, data)
        self._watch()

    def _close(self) -> None:
        if self._out >= 0:
            self.agent.loop.forget(self._out)
            os.close(self._out)
            self._out = -1

    # --- its end ---

    def _on_end(self, status: int) -> None:
        if self.agent.supervisor.stopping:
            return
        changed = read_changes(self._saved, self._environ)
        left = self.agent.list_helper_processes()
        self._left = {*left, *map(_get_session, left)} - {0}
        while self._out >= 0 and self._read() and not left:
            pass
        if not left:
            self._close()
        self._end(status, {} if status else changed)

    def _end(self, status: int, changed: dict[str, str | None]) -> None:
        """Take over the variables that the command has changed, and report its end."""
        self._unlock()
        self._changed = changed
        _set(changed)
        seconds = 0.0 if self._asked.done is not None else time.monotonic() - self._began_at
        ended = SetupEnded(status, seconds, changed)
        self.agent.link.uplink.send_later([encode_message(ended)])  # after the rest of its output

    # --- what follows ---

    def adapt(self, wanted: Prepare) -> Prepare:
        """Return the request, with the Python that the command has chosen."""
        pythons = list_python_names(wanted.pythons, self._folder)
        if pythons and self._asked.chooses_python:
            both = {**self._environ, **self._changed}
            after = {name: value for name, value in both.items() if value is not None}
            command = self._asked.command
            chosen = find_chosen_python(command, self._folder, self._environ, after)
            pythons = (chosen,) if chosen else pythons
        return wanted.copy_with(pythons=pythons, env=self.drop_replaced(wanted.env))

    def drop_replaced(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return variables of the user without those that the command has changed."""
        replaced = {name for name in self._changed if self._environ.get(name) == env.get(name)}
        return {name: value for name, value in env.items() if name not in replaced}


def _get_session(pid: int) -> int:
    """Return a process's session; 0 if there is no such process."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _set(variables: Mapping[str, str | None]) -> None:
    """Set or remove variables of this process."""
    for name, value in variables.items():
        if value is None:
            with contextlib.suppress(KeyError):
                del os.environ[name]
        else:
            os.environ[name] = value


PART = SetupCommand

"""The command of --setup on a host: whether it has to run, its run, and what it has changed.

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
from ..messages import NAME, RunSetup, SetUp, SetupEnded, SetupFound
from . import stamps
from .command import find_chosen_python, list_python_names, make_argv, make_environ, read_changes

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import ClassVar

    from ....agent.part import HostAgent
    from ....wire.codec import Message
    from ....wire.frames import Raw
    from .stamps import Stamp, Surroundings

_PIECE = 1 << 14
# Waits for the lock that its standard input is, and says so as the command's first output.
_LOCKS = (
    'import fcntl; print("waits for another job\'s --setup here", flush=True); '
    "fcntl.flock(0, fcntl.LOCK_EX)"
)


class SetupCommand(AgentPart, HostChanges):
    """Part that runs the command, one job after the other on a host."""

    # What this process remembers from one run to the next (--watch, --max-restarts): stamps by
    # their names, and its own values of the variables that the command has changed.
    _known: ClassVar[dict[str, Stamp]] = {}
    _own: ClassVar[dict[str, str | None]] = {}

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        agent.changes = self
        self._asked: SetUp
        self._around: Surroundings
        self._is_staged = False
        self._stamp: Stamp | None = None  # of this start
        self._folder = ""  # of the stamps; "" if there is none
        self._why_no_folder = ""
        self._asked_at = 0.0
        self._lock = self._out = -1
        self._left: set[int] = set()  # processes that the command has left, and their sessions
        self._child: tuple[int, Callable[[int], object]] = (-1, lambda status: None)
        self._began_at = 0.0

    def on_message(self, message: Message | Raw) -> None:
        """Find out whether the command has to run; or run it."""
        if isinstance(message, SetUp):
            self._look(message)
        elif isinstance(message, RunSetup):
            if message.skips and self._stamp is not None:
                self._use(self._stamp, skipped=True)
            else:
                self._await_lock()

    def on_ranks_end(self) -> None:
        """Stop reading what processes print that the command has left running."""
        self._close()

    # --- whether it has to run ---

    def _look(self, asked: SetUp) -> None:
        self._asked, self._asked_at = asked, time.time()
        if (stage := self.agent.complete_staging()) is None:
            return
        self._is_staged = bool(stage)
        try:
            folder = choose_working_folder(asked.chdir, asked.chdir_given, stage)
        except Unusable as error:
            self.agent.link.send(Refused(str(error), error.status))
            return
        _set(self._own)
        self._own.clear()
        self._around = self._look_around(os.path.realpath(folder))
        try:
            self._folder = own_paths.make_cache_folder("setup", os.environ) if asked.keeps else ""
            self._why_no_folder = "" if asked.keeps else "--no-host-cache"
        except OSError as error:
            self._why_no_folder = error.strerror or str(error)
        self._stamp = self._find_stamp()
        self.agent.link.send(SetupFound(self._stamp is not None))

    def _look_around(self, folder: str) -> Surroundings:
        given = self._asked.env
        environ = make_environ(without_outer_job(os.environ), given)
        command, sent = self._asked.command, self._asked.sent
        around = stamps.Surroundings(command, folder, environ, given, sent)
        # A staging folder is a new one at each start, so it is named after the user's own folder.
        around.place = f"{self._asked.chdir} (sent)" if self._is_staged else folder
        return around

    def _find_stamp(self) -> Stamp | None:
        """Return the stamp of a run of this process, or of any process, that still holds."""
        found = self._known.get(self._around.name)
        if found is None and not self._asked.again:
            found = self._read_stamp(stamps.compute_oldest())
        return found if found and self._around.has_not_changed_since(found) else None

    def _read_stamp(self, since: float) -> Stamp | None:
        return stamps.read(self._folder, self._around.name, since) if self._folder else None

    # --- one job after the other ---

    def _await_lock(self) -> None:
        """Run the command when no other job's runs on this host."""
        if self._folder:
            try:
                self._lock = stamps.open_lock(self._folder)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._spawn(
                    [sys.executable, "-I", "-S", "-c", _LOCKS], self._lock, self._on_wait_end
                )
                return
            except OSError:  # a file system without locks
                self._unlock()
        self._begin()

    def _on_wait_end(self, status: int) -> None:
        self._close()
        if self.agent.supervisor.stopping:
            return
        if status:  # it was killed, by hand
            self._end(status, "")
            return
        self._around = self._look_around(self._around.folder)
        stamp = self._read_stamp(self._asked_at)  # the other job may have done the same
        if stamp is not None and self._around.has_not_changed_since(stamp):
            self._use(stamp, skipped=True)
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
        argv = make_argv(self._asked.command, self._around.environ, self._saved)
        self._spawn(argv, NO_INPUT, self._on_end)

    def _spawn(self, argv: list[str], given: int, on_end: Callable[[int], object]) -> None:
        """Start a process, of which the output is sent to the launcher."""
        try:
            self._out, end = os.pipe()
            try:
                around = self._around
                files = (given, end, end)
                pid = system.spawn(Invocation(argv, dict(around.environ), around.folder, files))
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
        """Go on after the end of the command, or of the wait for the lock."""
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
        changes = read_changes(self._saved, self._around.environ)
        left = self.agent.list_helper_processes()
        self._left = {*left, *map(_get_session, left)} - {0}
        while self._out >= 0 and self._read() and not left:
            pass
        if not left:
            self._close()
        seconds = time.monotonic() - self._began_at
        if status:
            self._end(status, "")
            return
        stamp = self._around.make_stamp(changes, self._read_stamp(0.0))
        why = self._why_no_folder or stamps.find_reason_against(
            self._around, seconds, stamp, leaves=bool(left)
        )
        if self._is_staged and self._around.depends_on_folder(stamp):
            self._use(stamp, remark="it uses its folder, which is a new one at each start")
            return
        if not left:
            self._known[self._around.name] = stamp
        self._use(stamp, remark=why or self._keep(stamp))

    def _keep(self, stamp: Stamp) -> str:
        """Write a stamp for later starts; return the reason if it cannot be kept."""
        try:
            stamps.write(self._folder, self._around.name, stamp)
        except OSError as error:
            return f"{self._folder}: {error.strerror}"
        return ""

    def _use(self, stamp: Stamp, *, skipped: bool = False, remark: str = "") -> None:
        """Take over the variables that the command has changed, for all that follows."""
        self._stamp = stamp
        self._own.update({name: os.environ.get(name) for name in stamp.after})
        _set(stamp.after)
        self._end(0, remark, skipped=skipped)

    def _end(self, status: int, remark: str, *, skipped: bool = False) -> None:
        self._unlock()
        seconds = 0.0 if skipped else time.monotonic() - self._began_at
        changed = () if status or self._stamp is None else tuple(sorted(self._stamp.after))
        ended = SetupEnded(status, seconds, skipped, changed, remark)
        self.agent.link.uplink.send_later([encode_message(ended)])  # after the rest of its output

    # --- what follows ---

    def adapt(self, wanted: Prepare) -> Prepare:
        """Return the request, with the Python that the command has chosen."""
        around, pythons = self._around, list_python_names(wanted.pythons, self._around.folder)
        if pythons and self._asked.chooses_python:
            changes = {} if self._stamp is None else self._stamp.after
            after = around.get_environ_after(changes)
            chosen = find_chosen_python(around.command, around.folder, around.environ, after)
            pythons = (chosen,) if chosen else pythons
        return wanted.copy_with(pythons=pythons, env=self.drop_replaced(wanted.env))

    def drop_replaced(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return variables of the user without those that the command has changed."""
        before = {} if self._stamp is None else self._stamp.before
        return {name: value for name, value in env.items() if before.get(name) != value}


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

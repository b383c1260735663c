"""The agent's end of the hooks: a unix socket in the job's private folder."""

from __future__ import annotations

import socket
import time

from ..protocol.hook_messages import (
    Compiled,
    Compiling,
    Hello,
    HookMessage,
    Joined,
    Joining,
    Leaving,
)
from ..protocol.loop import READ, Loop
from ..protocol.message import Malformed, Tagged, from_json
from ..protocol.messages import FromHook
from . import posix

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_MOST_TEXT = 1 << 20
# A stack dump has no end mark: it is complete when nothing came for a moment. A process that has
# not begun (it is stopped, or waits for the disk) gets longer.
_QUIET_S = 0.15
_SLOWEST_S = 2.0
# Code that users do not look at, and how much of a line of theirs is shown.
_LIBRARIES = ("-packages/", "/lib/python", "/lib64/python", "/mcjax_hook/")
_MOST_SOURCE = 100


class Hook:
    """One Python process below a rank that has the hook."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.rank = -1
        self.pid = 0
        self.dump_signal = 0
        self.joining = False  # it has called initialize(), and has not left since
        self.look_signal = 0
        self.joined = False
        self.compilations = 0  # under way
        self.stacks: list[str] = []
        self.last_stack_at = 0.0
        self._held = b""

    def lines(self) -> list[str] | None:
        """The lines that have arrived; None when the process has closed its end."""
        try:
            data = self.connection.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        whole, newline, self._held = (self._held + data).rpartition(b"\n")
        return whole.decode("utf-8", "replace").split("\n") if newline else []


class HookServer:
    """Accepts hooks, tells `say(rank, message)` what they say, and asks them for stacks."""

    def __init__(
        self,
        path: str,
        loop: Loop,
        ranks: Collection[int],
        is_main: Callable[[int, int], bool],
        on_message: Callable[[FromHook], None],
    ) -> None:
        self.hooks: dict[int, Hook] = {}
        self._loop = loop
        self._ranks = ranks
        self._is_main = is_main
        self._on_message = on_message
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen(128)
        self._server.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._loop.watch(self._server.fileno(), READ, lambda ready: self._accept())

    def drain(self, rank: int) -> None:
        """Read all that a rank has said so far, so that its death comes after its own words.

        What others say of that death comes after it.
        """
        self._accept()
        for hook in list(self.hooks.values()):
            while hook.rank == rank or not hook.pid:  # or one that has not said whose it is
                if not self._read(hook):
                    break

    @property
    def joined(self) -> set[int]:
        """The processes that have come through initialize()."""
        return {hook.pid for hook in self.hooks.values() if hook.joined}

    def request_stacks(self, of_all_threads: bool) -> list[Hook]:
        """Ask every process for its stacks; those that were asked.

        Args:
            of_all_threads: also of those that run meanwhile, which may crash the process.

        """
        asked = []
        for hook in self.hooks.values():
            # It may have become another program since, which the signal would kill.
            signum = hook.dump_signal and hook.dump_signal + of_all_threads
            if hook.rank >= 0 and posix.handles(hook.pid, signum):
                hook.stacks = []
                posix.signal_process(hook.pid, signum)
                asked.append(hook)
        return asked

    def request_reruns(self, ranks: Collection[int]) -> None:
        """Ask the joined processes of these ranks to say which programs they still run."""
        for hook in self.hooks.values():
            # As with stacks: one that does not expect the signal would die of it.
            if hook.rank in ranks and posix.handles(hook.pid, hook.look_signal):
                posix.signal_process(hook.pid, hook.look_signal)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files: until one of the others ends
                self._loop.forget(self._server.fileno())
                return
            connection.setblocking(False)
            hook = Hook(connection)
            self.hooks[connection.fileno()] = hook
            self._watch(hook)

    def _watch(self, hook: Hook) -> None:
        self._loop.watch(hook.connection.fileno(), READ, lambda ready: self._read(hook))

    def _read(self, hook: Hook) -> bool:
        """Handle what one process has said; whether there may be more."""
        lines = hook.lines()
        if lines is None:
            self._loop.forget(hook.connection.fileno())
            del self.hooks[hook.connection.fileno()]
            hook.connection.close()
            for _ in range(hook.compilations):  # it died over them
                self._say(hook, Compiled())
            self._listen()
            return False
        for line in lines:
            if line.startswith('["'):
                self._take(hook, line)
            elif line:
                hook.last_stack_at = time.monotonic()
                if sum(map(len, hook.stacks)) < _MOST_TEXT:
                    hook.stacks.append(line)
        return bool(lines)

    def _take(self, hook: Hook, line: str) -> None:
        """A message; what makes no sense is not ours, and no reason to end a job."""
        try:
            message = Tagged.of_family(from_json(line))
        except Malformed:
            return
        if isinstance(message, Hello):
            hook.pid, hook.dump_signal = message.pid, message.dump_signal
            # The program may have changed the variable for a process of its own.
            rank = int(message.process_id) if message.process_id.isdecimal() else -1
            hook.rank = rank if rank in self._ranks else -1
        elif isinstance(message, HookMessage):
            self._say(hook, message)

    def _say(self, hook: Hook, message: HookMessage) -> None:
        joining = isinstance(message, Joining)
        said = FromHook(
            hook.rank,
            message,
            main=self._is_main(hook.pid, hook.rank),
            beside=joining and bool(self._joining_beside(hook)),
            repeated=joining and hook.joining,
        )
        hook.joining = joining or (hook.joining and not isinstance(message, Leaving))
        if isinstance(message, Joined):
            hook.joined, hook.look_signal = True, message.look_signal
        hook.compilations += isinstance(message, Compiling) - isinstance(message, Compiled)
        if hook.rank >= 0:
            self._on_message(said)

    def _joining_beside(self, hook: Hook) -> int:
        """Another process of the same rank that takes part in the job; 0 if there is none."""
        others = (other for other in self.hooks.values() if other is not hook and other.joining)
        return next((other.pid for other in others if other.rank == hook.rank), 0)


def with_source(dump: list[str]) -> list[str]:
    """A dump of stacks, with the user's lines of code after their frames."""
    from linecache import getline

    lines = []
    for line in dump:
        lines.append(line)
        if line.startswith('  File "/') and not any(part in line for part in _LIBRARIES):
            file, _, rest = line[8:].partition('", line ')
            number = rest.split(" ", 1)[0]
            source = getline(file, int(number)).strip() if number.isdigit() else ""
            lines += [f"    {source[:_MOST_SOURCE]}"] if source else []
    return lines


class Stacks:
    """A dump of stacks under way: complete when it has been quiet for a moment."""

    def __init__(self, asked: list[Hook], now: float) -> None:
        self.asked = asked
        self._since = now

    @property
    def deadline(self) -> float:
        """When to take what has come as all that comes."""
        if not self.asked:
            return self._since
        last = max(hook.last_stack_at for hook in self.asked)
        silent = any(hook.last_stack_at < self._since for hook in self.asked)
        quiet = max(last, self._since) + (_SLOWEST_S if silent else _QUIET_S)
        return min(quiet, self._since + _SLOWEST_S)

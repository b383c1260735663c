"""Agent's end of the hooks' connections: a unix socket in the job's private folder."""

from __future__ import annotations

import os
import socket

from ..machine.loop import READ, Loop
from ..wire import hook_messages
from ..wire.codec import Malformed
from ..wire.line import send
from ..wire.messages import FromHook
from ..wire.source_lines import END_OF_STACKS, MAIN_THREAD
from .stacks import Pieces, StackSource, select_main_thread, with_source
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ..wire.codec import Message
    from ..wire.hook_messages import HookMessage

# Bytes; longer than a failure with three texts of full length, even with every byte escaped.
_MOST_LINE = 1 << 22
# Connections that are not accepted yet; Linux's usual maximum.
_BACKLOG = 4096
# Enough to read all that a socket holds, but not an endless flood.
_MOST_READS = 256
# Name of every process of a framework build of Python for macOS, such as Homebrew's.
_FRAMEWORK = "Python"
# Prefix of faulthandler's output for a process that dies.
_CRASH = "Fatal Python error: "


class HookConnection(StackSource):
    """Connection to the hook in one Python process of a rank, and the state that it reported."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(-1, 0)
        self.answering: HookConnection | None = None  # to the thread that answers questions
        self.answers_for: HookConnection | None = None  # if this is the connection to a thread
        self.has_ended_python = False
        self.is_main = False  # it is the rank's own process, not a child process
        self.joining = False  # it has called initialize(), and has not left the job since
        self.compilations = 0  # under way
        self.has_crashed = False  # `stacks` are those of a crash
        self.is_asked = False  # its thread that answers has got a question
        self._connection = connection
        self._held = bytearray()  # an incomplete line
        self._is_skipping = False  # skips the rest of a line that is too long

    @property
    def fd(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def read_lines(self) -> list[str] | None:
        """Read once; return the complete lines, [""] if none is complete, [] if nothing arrived.

        Return None if the process has closed its end. An incomplete line is kept for later.
        """
        try:
            data = self._connection.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        # Only what is new is searched and copied: the line may be very long.
        end, *more = data.split(b"\n")
        if not self._is_skipping:
            self._held += end
            if len(self._held) > _MOST_LINE:
                self._held, self._is_skipping = bytearray(), True
        if not more:
            return [""]
        *whole, rest = bytes(self._held), *more
        self._held, self._is_skipping = bytearray(rest), False
        return [line.decode("utf-8", "replace") for line in whole]

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message with file descriptors; drop it if the process does not read or is gone."""
        send(self._connection, message, descriptors)

    def ask(self) -> bool:
        self.has_crashed = False
        if self.has_ended_python:
            self._pieces, self.has_answered = Pieces([MAIN_THREAD]), True
            return True
        if self.answering is None:
            return super().ask()
        # A second byte would only wait behind a first one that has not been answered.
        waits = self.is_asked and not self.has_answered
        self._pieces, self.has_answered, self.is_asked = Pieces(), False, True
        return waits or self.answering.send_byte()

    def send_byte(self) -> bool:
        """Wake up the thread that reads from this connection; return False if none does."""
        try:
            return self._connection.send(b".") == 1
        except OSError:
            return False

    def explain_silence(self) -> str:
        if self.answering is None:
            return super().explain_silence()
        is_asked = system.is_read(self.answering.fd)
        return "C code holds Python's lock (the GIL)" if is_asked else ""

    def add_stack_line(self, line: str) -> None:
        """Record a line of a stack dump, and whether the dump comes from a crash."""
        if line.startswith(_CRASH):
            self._pieces, self.has_crashed = Pieces(), True
        elif line == MAIN_THREAD and not self.has_crashed:  # an earlier question is answered late
            self._pieces = Pieces()
        if line == END_OF_STACKS:
            self.has_answered = True
        else:
            self._pieces.add(line)

    def pop_crash_stack(self) -> str:
        """Return the main thread's stack at a crash, only once; "" if there is no new crash."""
        if not self.has_crashed:
            return ""
        self.has_crashed = False
        return "\n".join(with_source(select_main_thread(self.stacks)))


class WrappedPrograms:
    """Registry of the processes that run ranks' programs below a wrapper command (--wrap).

    Args:
        commands: words of each wrapped rank's command without the wrapper, by rank.

    """

    def __init__(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._commands = commands
        self._found: dict[int, int] = {}  # rank -> the pid of its program

    def is_program(self, rank: int, pid: int) -> bool:
        """Return whether a rank's Python process runs the wrapped program; False for a helper."""
        if rank not in self._found and rank in self._commands and self._runs(rank, pid):
            self._found[rank] = pid
        return self.get_pid(rank) == pid

    def get_pid(self, rank: int) -> int | None:
        """Return the pid of a wrapped rank's program; None if unknown."""
        return self._found.get(rank)

    def _runs(self, rank: int, pid: int) -> bool:
        """Return whether a process's command line ends with the rank's command."""
        words = system.read_command(pid)
        name, *arguments = self._commands[rank]
        at = len(words) - len(arguments) - 1
        names = (os.path.basename(name), _FRAMEWORK)
        return at >= 0 and os.path.basename(words[at]) in names and words[at + 1 :] == arguments


class HookServer:
    """Server for hooks: accepts connections, passes on messages, and requests stacks.

    Args:
        path: path of the socket to create.
        loop: event loop that watches the connections.
        is_main: called with a pid and a rank; returns whether the pid is the rank's own process.
        on_message: called with the connection and each message from a hook of a rank.
        on_gone: called with each connection whose process is gone.

    Attributes:
        path: path of the socket.
        ranks: ranks of this host.
        seen: ranks whose hook has ever connected.
        members: ranks that have ever joined the JAX job.
        wrapped: registry of the programs of ranks with wrappers.

    """

    def __init__(
        self,
        path: str,
        loop: Loop,
        is_main: Callable[[int, int], bool],
        on_message: Callable[[HookConnection, FromHook], None],
        on_gone: Callable[[HookConnection], None],
    ) -> None:
        self.path = path
        self.ranks: Collection[int] = ()
        self.seen: set[int] = set()
        self.members: set[int] = set()
        self.wrapped = WrappedPrograms({})
        self._hooks: dict[int, HookConnection] = {}
        self._loop = loop
        self._is_main = is_main
        self._on_message = on_message
        self._on_gone = on_gone
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen(_BACKLOG)
        self._server.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Close the socket and all connections."""
        for hook in self._hooks.values():
            hook.close()
        self._server.close()

    def drain(self, rank: int) -> None:
        """Read all messages that a rank has sent so far, so that they are handled before its end.

        Messages from other ranks stay unread, because they may be effects of that end.
        """
        self.accept()
        for hook in list(self._hooks.values()):
            for _ in range(_MOST_READS):
                mine = hook.rank == rank or not hook.pid  # without a Hello the rank is unknown
                if not mine or not self._read(hook):
                    break
            if hook.rank == rank:
                self._hand_on_crash(hook)

    def read_sibling_connections(self, read: HookConnection) -> None:
        """Read the same rank's other connections."""
        for hook in list(self._hooks.values()):
            if hook.rank == read.rank and hook is not read:
                self._read(hook)

    def list_stack_sources(self) -> list[HookConnection]:
        """Return the hook's connection of each of the ranks' processes, to ask it for stacks."""
        self.accept()
        self._read_pending_hellos()
        sources: dict[int, HookConnection] = {}
        for hook in self._hooks.values():
            if hook.rank >= 0 and hook.answers_for is None:
                sources.setdefault(hook.pid, hook)  # later ones are of calls and debuggers
        return list(sources.values())

    def _read_pending_hellos(self) -> None:
        for hook in list(self._hooks.values()):
            if not hook.pid:  # its first message was not read yet
                self._read(hook)

    # --- connections ---

    def _listen(self) -> None:
        self._loop.watch(self._server.fileno(), READ, lambda ready: self.accept())

    def accept(self) -> None:
        """Accept all pending connections."""
        while True:
            try:
                connection, _ = self._server.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files: wait until a connection ends
                self._loop.forget(self._server.fileno())
                return
            connection.setblocking(False)
            hook = HookConnection(connection)
            self._hooks[hook.fd] = hook
            self._watch(hook)

    def _watch(self, hook: HookConnection) -> None:
        self._loop.watch(hook.fd, READ, lambda ready: self._read(hook))

    def _read(self, hook: HookConnection) -> bool:
        """Read a connection once and handle its lines; return whether more may be readable."""
        lines = hook.read_lines()
        if lines is None:
            self._forget(hook)
            return False
        for line in lines:
            if line.startswith('["'):
                self._handle(hook, line)
            elif line:
                (hook.answers_for or hook).add_stack_line(line)
        return bool(lines)

    def _forget(self, hook: HookConnection) -> None:
        if self._hooks.pop(hook.fd, None) is None:
            return  # it was read to its end because of another process's message
        self._loop.forget(hook.fd)
        hook.close()
        hook.has_answered = True
        if hook.answers_for is not None:
            hook.answers_for.answering = None
            return
        self._hand_on_crash(hook)
        self._on_gone(hook)
        for _ in range(hook.compilations):  # unfinished when it ended
            self._hand_on(hook, hook_messages.Compiled())
        self._listen()

    def _hand_on_crash(self, hook: HookConnection) -> None:
        if hook.is_main and (stack := hook.pop_crash_stack()):
            self._hand_on(hook, hook_messages.Crashed(stack))

    # --- messages ---

    def _handle(self, hook: HookConnection, line: str) -> None:
        """Decode and handle a message; drop a malformed one, because it must not end the job."""
        try:
            message = hook_messages.HookMessage.of(line)
        except Malformed:
            return
        if isinstance(message, hook_messages.Hello):
            self._identify(hook, message)
        elif isinstance(message, hook_messages.Answering):
            self._pair(hook, message.pid)
        elif isinstance(message, hook_messages.PythonEnded):
            hook.has_ended_python = True
        else:
            self._hand_on(hook, message)

    def _identify(self, hook: HookConnection, hello: hook_messages.Hello) -> None:
        hook.pid = hello.pid
        try:
            rank = int(hello.process_id)
        except ValueError:
            rank = -1
        # The program may have changed the variable for a child process.
        hook.rank = rank if rank in self.ranks else -1
        if hook.rank >= 0:
            self.seen.add(rank)
            wrapped = self.wrapped.is_program(rank, hook.pid)
            hook.is_main = wrapped or self._is_main(hook.pid, rank)

    def _pair(self, thread: HookConnection, pid: int) -> None:
        """Record that a connection leads to the answering thread of a process."""
        thread.pid = pid
        self._read_pending_hellos()  # the process's own may be unread
        for hook in self._hooks.values():
            if hook.pid == pid and hook is not thread:  # the hook's is the first
                hook.answering, thread.answers_for = thread, hook
                return

    def _hand_on(self, hook: HookConnection, message: HookMessage) -> None:
        joins = isinstance(message, hook_messages.Joining)
        siblings = [other for other in self._hooks.values() if other.rank == hook.rank]
        from_hook = FromHook(
            hook.rank,
            message,
            main=hook.is_main,
            beside=joins and any(other.joining for other in siblings if other is not hook),
            repeated=joins and hook.joining,
        )
        _update_connection(hook, message)
        if hook.rank >= 0:
            if hook.joined:
                self.members.add(hook.rank)
            self._on_message(hook, from_hook)


def _update_connection(hook: HookConnection, message: HookMessage) -> None:
    """Update the connection's state from a message: joined, compiling and so on."""
    if isinstance(message, hook_messages.Joining):
        hook.joining = True
    elif isinstance(message, (hook_messages.Leaving, hook_messages.NotJoined)):
        hook.joining = False
    elif isinstance(message, hook_messages.Joined):
        hook.joined = True
    elif isinstance(message, hook_messages.Compiling):
        hook.compilations += 1
    elif isinstance(message, hook_messages.Compiled):
        hook.compilations -= 1

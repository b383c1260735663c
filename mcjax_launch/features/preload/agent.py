"""--preload on one host: an import server imports modules, and the ranks are forked from it.

The server runs the first rank's command, and stops before the program. When it has imported the
modules, the agent asks it for one rank after another, and then kills it: so the agent adopts its
children. Each waits until then. Whatever is odd means that ranks are started afresh, with a reason.
"""

from __future__ import annotations

import os
import signal
import socket
import time

from ...agent.part import AgentPart, RankStarter
from ...agent.stacks import StackSource
from ...agent.system import system
from ...agent.system.unix import NO_INPUT, Invocation, SpawnError
from ...machine.interpreter import find_executable
from ...machine.loop import READ, Loop
from ...wire import hook_environ
from ...wire.codec import Malformed, to_json
from ...wire.exit_status import get_signal_name
from ...wire.source_lines import END_OF_STACKS
from .messages import (
    NAME,
    READ_AT_START,
    READ_BY_LIBRARIES,
    Fork,
    Forked,
    ForkMessage,
    ImportBegins,
    Imported,
    Importing,
    Preload,
    Preloaded,
    StartedAfresh,
)
from .program import Unsuited, find_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ...agent.part import HostAgent, Wanted
    from ...machine.system import Limit
    from ...wire.codec import Message
    from ...wire.frames import Raw


_MOST_PACKET = 1 << 16
_ANSWERS_S = 10.0  # most seconds for the fork of a rank


class ImportServerLink:
    """The agent's link to an import server, a process that imports modules and then forks ranks.

    Args:
        modules: names of the modules.
        first: the rank whose command and environment the server gets.
        standard: descriptors for the server's 0, 1 and 2.
        files_limit: limit of open files; see `System.spawn`.

    Attributes:
        is_auto: True if the user has not named the modules.
        is_early: True if the ranks are started later, so that files may have changed by then.

    Raises:
        OSError, SpawnError: the process cannot be started.

    """

    def __init__(
        self,
        modules: Sequence[str],
        first: Wanted,
        standard: Sequence[int],
        files_limit: Limit | None,
        *,
        is_auto: bool,
        is_early: bool,
    ) -> None:
        (rank, environ), self.first = first, first
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(_ANSWERS_S)
        since = time.time_ns() if is_early else 0
        order = f"{NAME}:{theirs.fileno()}:{'auto' * is_auto}:{since}:{','.join(modules)}"
        environ = {**environ, hook_environ.RUN_INSTEAD: order}
        theirs.set_inheritable(True)
        try:
            self.pid = system.spawn(
                Invocation(rank.argv, environ, rank.cwd, standard, rank.settings, files_limit)
            )
        except (OSError, SpawnError):
            self._connection.close()
            raise
        finally:
            theirs.close()
        self.importer = Importer(rank.process_id, self.pid)

    def watch(self, loop: Loop, on_message: Callable[[ForkMessage], object]) -> None:
        """Call `on_message` with each message, until the server says nothing more."""

        def read() -> None:
            message = self._receive()
            if message is None:  # its exit status says more
                loop.forget(self._connection.fileno())
            elif isinstance(message, ForkMessage):
                on_message(message)

        loop.watch(self._connection.fileno(), READ, lambda ready: read())

    def fork(self, order: Fork, descriptors: Sequence[int]) -> Forked:
        """Let the server fork a rank; return its answer.

        Raises:
            ConnectionError: the server has ended, or does not answer.

        """
        try:
            socket.send_fds(self._connection, [to_json(order).encode()], descriptors)
        except ConnectionError:
            raise
        except OSError as error:  # such as too large an environment
            return Forked(0, str(error.strerror))
        while isinstance(answer := self._receive(), str):  # its stack
            pass
        if not isinstance(answer, Forked):
            raise ConnectionError
        return answer

    def _receive(self) -> ForkMessage | str | None:
        """Return the next message, or the text of the server's stack; None for the end."""
        try:
            data = self._connection.recv(_MOST_PACKET)
        except OSError:
            return None
        if not data:
            return None
        text = data.decode("utf-8", "replace")
        if text.startswith('["'):
            try:
                return ForkMessage.of(text)
            except Malformed:
                pass
        self.importer.add_text(text)
        return text

    def kill(self) -> None:
        """Kill the server, which makes forked ranks children of this process at its end."""
        os.kill(self.pid, signal.SIGKILL)

    def reap(self, loop: Loop) -> None:
        """Wait for the server's end, and close the connection."""
        system.reap(self.pid)
        loop.forget(self._connection.fileno())
        self._connection.close()


class Importer(StackSource):
    """The server as a process that can be asked for its stack, which it sends in packets."""

    importing = True

    def add_text(self, text: str) -> None:
        """Record the server's stack, which arrives in one message."""
        *lines, end = text.splitlines()
        for line in lines:
            self._pieces.add(line)
        self.has_answered = end == END_OF_STACKS


_ELF = b"\x7fELF"
_MOST_TEXT = 200
_READ_BEFORE = (*READ_AT_START, *READ_BY_LIBRARIES)


class Preloading(AgentPart, RankStarter):
    """Part of the agent that lets an import server fork ranks, or else starts ranks afresh."""

    def __init__(self, agent: HostAgent) -> None:
        AgentPart.__init__(self, agent)
        RankStarter.__init__(self, agent.starter.files_limit)
        agent.starter = self
        self._order: Preload | None = None
        self._why = ""  # the reason to import, found in PROGRAM; "" if the user has named modules
        self._server: ImportServerLink | None = None
        self._imported: Imported | None = None  # the end of the imports, or of the server
        self._ranks: Sequence[Wanted] = ()  # to be started when the imports are over
        self._first_ends: tuple[int, ...] = ()  # the first rank's streams, which the server uses
        self._hidden: tuple[int, ...] = ()  # both ends of the pipe for what nobody shall see

    def on_message(self, message: Message | Raw) -> None:
        """Record the order to import modules, which comes before the start."""
        assert isinstance(message, Preload)
        self._order = message

    def prepare(self, ranks: Sequence[Wanted]) -> None:
        """Import jax for ranks that are started later, if PROGRAM's present files allow that."""
        if self._order is not None and self._order.auto and not self._find_obstacle(ranks):
            self._start_server(ranks[0], is_early=True)

    def start_ranks(self, ranks: Sequence[Wanted]) -> bool:
        """Begin to fork ranks, if there is an order to import; return whether this starts them."""
        if self._order is None:
            return False
        if obstacle := self._find_obstacle(ranks):
            self._drop()  # an import that was begun before PROGRAM changed
            self._report_afresh(ranks, obstacle)
            return False
        self._ranks = ranks
        if self._server is None and self._imported is None:
            self._start_server(ranks[0], is_early=False)
        if self._imported is not None:
            self._fork_ranks(self._imported)
        return True

    def _find_obstacle(self, ranks: Sequence[Wanted]) -> str:
        """Return why these ranks are not to be forked; "" if they may be."""
        assert self._order is not None
        rank, environ = ranks[0]
        if not system.forks_ranks:
            return "it needs Linux and /proc"
        path = find_executable(rank.argv[0], rank.cwd, environ.get("PATH", os.defpath))
        try:
            with open(path or rank.argv[0], "rb") as file:
                if file.read(len(_ELF)) != _ELF:
                    return f"{rank.argv[0]} is a script"
        except OSError:
            return "its command cannot be read"
        if environ.get("PYTHONHASHSEED") == "random":
            return "PYTHONHASHSEED=random asks for a different seed in each rank"
        if not self._order.auto:
            return ""
        if len(ranks) == 1:
            return "a single rank on its host"
        try:
            self._why = find_library(rank.argv, rank.cwd, environ)
        except Unsuited as unsuited:
            return str(unsuited)
        return ""

    # --- the server ---

    def _start_server(self, first: Wanted, *, is_early: bool) -> None:
        """Start the server with the command of the first rank."""
        assert self._order is not None
        is_auto = self._order.auto
        if is_auto:
            self._hidden = os.pipe()
            for fd in self._hidden:
                os.set_blocking(fd, False)  # a full pipe is an error of the import that prints
            standard = NO_INPUT, self._hidden[1], self._hidden[1]
        else:
            self._first_ends = self.agent.make_standard_streams(first[0])
            standard = NO_INPUT, self._first_ends[1], self._first_ends[2]
        how = {"is_auto": is_auto, "is_early": is_early}
        try:
            modules, limit = self._order.modules, self.files_limit
            self._server = ImportServerLink(modules, first, standard, limit, **how)
        except (OSError, SpawnError):  # starting the ranks afresh reports the same error
            self._imported = Imported(0.0, "the importing process cannot be started")
        else:
            self._server.watch(self.agent.loop, self._on_message_of_server)

    def _on_message_of_server(self, message: ForkMessage) -> None:
        if isinstance(message, ImportBegins):
            self.agent.link.send(Importing(message.module))
        elif isinstance(message, Imported):
            printed = self._read_printed_line()
            why_not = message.why_not or (f"an import prints: {printed}" if printed else "")
            self._imported = Imported(message.seconds, why_not)
            if self._ranks:
                self._fork_ranks(self._imported)

    def _read_printed_line(self) -> str:
        """Return the first line that a chosen import has printed; "" if it has printed nothing."""
        try:
            data = os.read(self._hidden[0], _MOST_TEXT) if self._hidden else b""
        except BlockingIOError:
            return ""
        return data.decode("utf-8", "replace").strip().partition("\n")[0]

    def handle_ended_children(self) -> None:
        """Handle the end of the server before it has been asked for ranks."""
        status = None if self._server is None else system.read_exit_status(self._server.pid)
        if status is None:
            return
        self._end_server()
        how = f"was killed by {get_signal_name(-status)}" if status < 0 else f"exited ({status})"
        self._imported = Imported(0.0, f"the importing process {how}")
        if self._ranks:
            self._fork_ranks(self._imported)

    def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            server.reap(self.agent.loop)

    def owns(self, pid: int) -> bool:
        """Return whether a process, which this part reaps, is the server."""
        return self._server is not None and self._server.pid == pid

    @property
    def placeholder_pids(self) -> Mapping[int, int]:
        """Number of the first rank, by the pid of the import server that stands in for the rank."""
        if self._server is None or not self._ranks:
            return {}
        return {self._server.pid: self._ranks[0][0].process_id}

    def list_stack_sources(self) -> Collection[Importer]:
        """Return the server, which can be asked for its stack."""
        return [self._server.importer] if self._server is not None and self._ranks else []

    def on_ranks_end(self) -> None:
        """Fork no ranks, and end the server."""
        self._ranks = ()
        self._drop()

    def _drop(self) -> None:
        """End the server, and close all descriptors."""
        self._end_server()
        for fd in (*self._first_ends, *self._hidden):
            os.close(fd)
        self._first_ends = self._hidden = ()

    # --- the ranks ---

    def _fork_ranks(self, imported: Imported) -> None:
        """Let the server fork the ranks; start afresh those that it cannot fork."""
        ranks, self._ranks = self._ranks, ()
        forked: dict[int, int] = {}  # pids
        afresh: dict[str, list[Wanted]] = {}  # by the reason
        start, go = os.pipe()
        try:
            for wanted in ranks:
                answer = Forked(0, imported.why_not)
                if not imported.why_not:
                    answer = self._fork(wanted, start)
                if answer.pid:
                    forked[wanted[0].process_id] = answer.pid
                else:
                    afresh.setdefault(answer.why_not, []).append(wanted)
        except ConnectionError:
            forked, afresh = {}, {"the importing process does not answer": list(ranks)}
        self._drop()
        for rank, pid in forked.items():
            self.agent.record_rank_start(rank, pid)
        os.write(go, b"." * len(forked))
        os.close(start)
        os.close(go)  # a rank that has not got a byte ends
        if forked:
            self.agent.link.send(Preloaded(tuple(forked), imported.seconds, self._why))
        for reason, those in afresh.items():
            self._report_afresh(those, reason)
        self.agent.start_ranks([wanted for those in afresh.values() for wanted in those])
        self.agent.reap()  # a rank may have been killed before it was one

    def _fork(self, wanted: Wanted, start: int) -> Forked:
        """Let the server fork a rank; return the answer.

        Raises:
            ConnectionError: the server has ended, or does not answer.

        """
        assert self._server is not None
        (rank, environ), (first, servers) = wanted, self._server.first
        names = sorted({*servers, *environ})
        changes = {name: environ.get(name) for name in names}
        changes = {name: value for name, value in changes.items() if servers.get(name) != value}
        if read := [name for name in changes if name.startswith(_READ_BEFORE)]:
            return Forked(0, f"{read[0]} differs between ranks, and is read before the program")
        if len(rank.settings.cores or ()) != len(first.settings.cores or ()):
            return Forked(0, "its number of cores differs")
        differs = [mine != its for mine, its in zip(first.argv, rank.argv)]
        same = differs.index(True) if True in differs else len(rank.argv)
        ends, self._first_ends = self._first_ends, ()
        ends = ends or self.agent.make_standard_streams(rank)
        try:
            order = Fork(rank.argv, same, changes, rank.settings, rank.cwd)
            return self._server.fork(order, [*ends, start])
        finally:
            for fd in ends:
                os.close(fd)

    def _report_afresh(self, ranks: Sequence[Wanted], reason: str) -> None:
        numbers = tuple(rank.process_id for rank, _ in ranks)
        self.agent.link.send(StartedAfresh(numbers, reason))


PART = Preloading

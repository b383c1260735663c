"""--preload on one host: an import server imports modules, and the ranks are forked from it."""

from __future__ import annotations

import contextlib
import os

from ....agent.part import AgentPart, RankStarter
from ....agent.system import system
from ....agent.system.unix import NO_INPUT, SpawnError
from ....machine.interpreter import find_executable
from ....wire.signals import get_signal_name
from ..messages import (
    Forked,
    ImportBegins,
    Imported,
    Importing,
    NotForked,
    Preload,
    StartedAfresh,
)
from .import_server import Forking, Importer, ImportServerLink
from .program import Unsuited, find_library

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ....agent.part import HostAgent, Wanted
    from ....wire.codec import Message
    from ....wire.frames import Raw
    from ....wire.messages import RankOrder
    from ..messages import ForkMessage

_ELF = b"\x7fELF"
_MOST_TEXT = 200


class Preloading(AgentPart, RankStarter):
    """Part of the agent that lets an import server fork ranks, or else starts ranks afresh."""

    def __init__(self, agent: HostAgent) -> None:
        AgentPart.__init__(self, agent)
        RankStarter.__init__(self, agent.starter.files_limit)
        agent.starter = self
        self._order: Preload | None = None
        self._forking: Forking | None = None  # under way
        self._server: ImportServerLink | None = None  # its process has not been reaped
        self._why = ""  # the reason to import, found in PROGRAM; "" if the user has named modules
        self._unfit = ""  # why the server cannot fork
        self._imported_s: float | None = None  # seconds that its imports have taken
        self._importer: Importer | None = None  # has been asked for its stack
        self._hidden: tuple[int, int] | None = None  # both ends of the pipe for hidden output

    def on_message(self, message: Message | Raw) -> None:
        """Record the order to import modules, which comes before the start."""
        assert isinstance(message, Preload)
        self._order = message

    def prepare(self, ranks: Sequence[Wanted]) -> None:
        """Import jax for ranks that are started later, if PROGRAM's present source allows that."""
        if self._order is None or not self._order.libraries or _find_obstacle(*ranks[0]):
            return
        with contextlib.suppress(Unsuited):
            self._why = self._choose(ranks, self._order.libraries)
            self._start_server(ranks[0])

    def start_ranks(self, ranks: Sequence[Wanted]) -> bool:
        """Begin to fork ranks, if there is an order to import; return whether this starts them."""
        if self._order is None:
            return False
        try:
            if self._order.libraries:
                self._why = self._choose(ranks, self._order.libraries)
        except Unsuited as unsuited:
            self._hang_up()  # of an import that was begun before PROGRAM changed
            numbers = tuple(rank.process_id for rank, _ in ranks)
            self.agent.link.send(StartedAfresh(numbers, str(unsuited)))
            return False
        agent = self.agent
        self._forking = Forking(
            ranks,
            agent.make_standard_streams,
            agent.record_rank_start,
            self._why,
        )
        if reason := self._unfit or _find_obstacle(*ranks[0]):
            self._forking.refuse_all(reason)
            self._finish_forking()
        elif self._server is None:
            self._start_server(ranks[0])
        elif self._imported_s is not None:
            self._on_imported(self._server, self._imported_s)
        return True

    def _choose(self, ranks: Sequence[Wanted], libraries: Collection[str]) -> str:
        """Return why jax is imported for the ranks, whose user has named no modules.

        Raises:
            Unsuited: nothing should be imported; the text says why.

        """
        if len(ranks) == 1:
            raise Unsuited("a single rank on its host")
        rank, environ = ranks[0]
        return find_library(rank.argv, rank.cwd, environ, libraries)

    def _start_server(self, first: Wanted) -> None:
        """Start the server with the command of the first rank."""
        assert self._order is not None
        rank, environ = first
        order = f"{','.join(self._order.modules)}:{'auto' if self._why else ''}"
        try:
            self._server = ImportServerLink(order, environ, self.agent.loop, self._on_packet)
            self._server.start(rank, self._make_streams(), self.files_limit)
        except (OSError, SpawnError):  # starting the ranks afresh reports the same error
            self._hang_up()
            self._server = None
            if self._forking is not None:
                self._forking.refuse_all()
                self._finish_forking()

    def _make_streams(self) -> tuple[int, int, int]:
        """Return descriptors for the server's 0, 1 and 2: the first rank's, or a hidden pipe."""
        if not self._why:
            assert self._forking is not None
            _, out, err = self._forking.get_first_ends()
            return NO_INPUT, out, err
        self._hidden = read_end, end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(end, False)  # a full pipe is an error of the import that prints
        return NO_INPUT, end, end

    def _read_printed_line(self) -> str:
        """Return the first line that a chosen import has printed; "" if it has printed nothing."""
        try:
            data = os.read(self._hidden[0], _MOST_TEXT) if self._hidden is not None else b""
        except BlockingIOError:
            return ""
        return data.decode("utf-8", "replace").strip().partition("\n")[0]

    def _on_imported(self, server: ImportServerLink, seconds: float) -> None:
        """Let the server fork; give up if a chosen import prints: each rank has to show that."""
        assert self._forking is not None
        if printed := self._read_printed_line():
            self._unfit = f"an import prints: {printed}"
            server.hang_up()
        else:
            self._forking.begin(server, seconds)

    def _finish_forking(self) -> None:
        forking, self._forking = self._forking, None
        assert forking is not None
        self._close_hidden()
        forking.end()
        for report in forking.make_reports():
            self.agent.link.send(report)
        self.agent.start_ranks(forking.afresh)
        self.agent.reap()  # a rank may have been killed before it was one

    def _on_packet(self, packet: ForkMessage | str) -> None:
        """Handle a message from the server, or a piece of its stack."""
        if isinstance(packet, Imported):
            self._imported_s = packet.seconds
        if self._forking is None:  # the ranks are not to be started yet, or not any more
            if isinstance(packet, NotForked):
                self._unfit = packet.reason
            return
        if isinstance(packet, str):
            if self._importer is not None:
                self._importer.add_text(packet)
        elif isinstance(packet, ImportBegins):
            self.agent.link.send(Importing(packet.module))
        elif isinstance(packet, Imported) and self._server is not None:
            self._on_imported(self._server, packet.seconds)
        elif isinstance(packet, NotForked) and not self._forking.has_begun:
            self._unfit = packet.reason
        elif isinstance(packet, (Forked, NotForked)):
            self._forking.on_answer(packet)

    # --- children ---

    def handle_ended_children(self) -> None:
        """Handle the end of the server.

        The agent calls this before it reaps other children: at the server's end, its ranks become
        children of this process, even ranks that have ended.
        """
        status = self._server.reap() if self._server is not None else None
        if status is None:
            return
        self._server = None
        if self._forking is None:
            return
        if not self._forking.is_complete:
            self._forking.refuse_all(
                self._unfit or f"the importing process {_describe_end(status)}"
            )
        self._finish_forking()

    def owns(self, pid: int) -> bool:
        """Return whether a process, which this part reaps, is the server."""
        return self._server is not None and self._server.pid == pid

    @property
    def is_starting(self) -> bool:
        """True if some children are not ranks yet, but will become ranks."""
        return self._forking is not None

    @property
    def placeholder_pids(self) -> Mapping[int, int]:
        """Number of the first rank, by the pid of the import server that stands in for the rank."""
        if self._forking is None or self._server is None:
            return {}
        return {self._server.pid: self._forking.ranks[0][0].process_id}

    def list_stack_sources(self) -> Collection[Importer]:
        """Return the server, which can be asked for its stack."""
        servers = self.placeholder_pids.items()
        sources = [Importer(rank, pid) for pid, rank in servers]
        self._importer = sources[0] if sources else None
        return sources

    def on_ranks_end(self) -> None:
        """Stop forking ranks, and end the server."""
        if self._forking is not None:
            self._forking.close()
            self._forking = None
            self._close_hidden()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.hang_up()

    def _close_hidden(self) -> None:
        for fd in self._hidden or ():
            os.close(fd)
        self._hidden = None


def _find_obstacle(rank: RankOrder, environ: dict[str, str]) -> str:
    """Return why a program cannot be forked; "" if it may be possible."""
    if not system.forks_ranks:
        return "it needs Linux and /proc"
    path = find_executable(rank.argv[0], rank.cwd, environ.get("PATH", os.defpath))
    try:
        with open(path or rank.argv[0], "rb") as file:
            return "" if file.read(len(_ELF)) == _ELF else f"{rank.argv[0]} is a script"
    except OSError:
        return "its command cannot be read"


def _describe_end(status: int) -> str:
    return f"was killed by {get_signal_name(-status)}" if status < 0 else f"exited ({status})"


PART = Preloading

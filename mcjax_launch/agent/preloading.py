"""--preload on one host: a fork server imports modules, and the ranks are forked from copies of it.

The server may outlive an attempt, with this agent: then the ranks of the next one are forked from
it too. It is the only process that is left between two attempts.
"""

from __future__ import annotations

import os

from ..protocol.fork_messages import CopyEnded, Imported, Importing, Unfit
from ..protocol.program_check import executable
from ..protocol.signals import signal_name
from .fork_server import ForkServer
from .stacks import Importer
from .system import system
from .system.unix import SpawnError

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..protocol.fork_messages import ForkMessage
    from ..protocol.loop import Loop
    from ..protocol.messages import RankOrder
    from ..protocol.ulimits import Limit
    from .fork_server import Wanted
    from .forking import Forking, Outcome

_ELF = b"\x7fELF"


def reason_against(ranks: Sequence[Wanted]) -> str:
    """Why a program can certainly not be forked by its own Python; "" if it may."""
    if any(rank.wrapper_words for rank, _ in ranks):
        return "ranks run under --wrap"
    return _reason_against(*ranks[0])


def _reason_against(rank: RankOrder, environ: dict[str, str]) -> str:
    if not system.forks_ranks:
        return "it needs Linux"
    path = executable(rank.argv[0], rank.cwd, environ.get("PATH", os.defpath))
    try:
        with open(path or rank.argv[0], "rb") as file:
            return "" if file.read(len(_ELF)) == _ELF else f"{rank.argv[0]} is a script"
    except OSError:
        return "its command cannot be read"


class Preloading:
    """Has the ranks of one attempt forked, as far as that can be done.

    Args:
        loop: to wait in.
        server: that of an earlier attempt.

    Attributes:
        server: what is there now.

    """

    def __init__(self, loop: Loop, server: ForkServer | None = None) -> None:
        self.server = server
        self._loop = loop
        self._keeps = server is not None
        self._is_reused = False
        self._modules = ""
        self._null = 0
        self._files_limit: Limit | None = None
        self._forking: Forking | None = None  # under way
        self._unfit = ""
        self._importer: Importer | None = None  # that has been asked for its stack
        self._on_importing: Callable[[str], None] = lambda module: None
        self._on_end: Callable[[Outcome, float], None] = lambda outcome, seconds: None
        if server is not None:
            server.move_to(loop, self._received)

    def begin(
        self,
        modules: Sequence[str],
        forking: Forking,
        *,
        null: int,
        files_limit: Limit | None,
        keep: bool,
        on_importing: Callable[[str], None],
        on_end: Callable[[Outcome, float], None],
    ) -> None:
        """Have ranks forked.

        Args:
            modules: to be imported.
            forking: has the ranks.
            null: a descriptor of /dev/null.
            files_limit: see `System.spawn`.
            keep: the server for another attempt.
            on_importing: called with each module that is about to be imported.
            on_end: called once, unless this is abandoned before, with how it went, and how long the
                imports took.

        """
        self._modules = ",".join(modules)
        self._forking, self._on_importing, self._on_end = forking, on_importing, on_end
        self._null, self._files_limit = null, files_limit
        self._keeps = keep and system.knows_its_children()
        if reason := reason_against(forking.ranks):
            forking.refuse_all(reason, expected=system.forks_ranks)
            self._over()
        elif self.server is not None and self.server.is_idle:
            self._is_reused = True
            self._fork()
        else:
            self._start_server()

    @property
    def is_under_way(self) -> bool:
        """Whether there may be children that will be ranks, and are not yet."""
        return self._forking is not None

    def is_server(self, pid: int) -> bool:
        """Whether this is the server's process, of which `look` takes care."""
        return self.server is not None and self.server.pid == pid

    @property
    def importing(self) -> dict[int, int]:
        """The pid of the server, as that of the first rank, while the ranks wait for it."""
        if self._forking is None or self.server is None:
            return {}
        return {self.server.pid: self._forking.ranks[0][0].process_id}

    @property
    def spared(self) -> int:
        """The pid of the server, if it is to outlive this attempt; else 0."""
        return self.server.pid if self._keeps and self.server and self.server.is_idle else 0

    def request_stacks(self, all_threads: bool) -> list[Importer]:
        """Ask what imports for its stack, if it can be asked; see HookServer."""
        for pid, rank in self.importing.items():
            assert self.server is not None
            signum = self.server.dump_signals[all_threads]
            if system.handles(pid, signum):
                self._importer = Importer(rank, pid)
                system.signal_process(pid, signum)
                return [self._importer]
        return []

    def look(self) -> None:
        """See whether the server has ended."""
        server = self.server
        status = server.status() if server is not None else None
        if status is None or self.server is not server:
            return
        self.server = None
        if self._forking is None:
            return
        self._forking.receive_all()
        if self._is_reused:
            self._start_anew()
        else:
            self._forking.refuse_all(self._unfit or f"the importing process {_fate(status)}")
            self._over()

    def abandon(self) -> None:
        """The ranks are not wanted any more: what is not one yet will end."""
        if self._forking is not None:
            self._forking.close()
            self._forking = None
            self.drop()

    def drop(self) -> None:
        """There is no other attempt: the server ends."""
        self._keeps = False
        if self.server is not None:
            self.server.hang_up()

    # --- the steps ---

    def _received(self, packet: ForkMessage | str) -> None:
        if self._forking is None:
            return
        if isinstance(packet, str):
            if self._importer is not None:
                self._importer.take(packet)
        elif isinstance(packet, Importing):
            self._on_importing(packet.module)
        elif isinstance(packet, Unfit):
            self._unfit = packet.reason
        elif isinstance(packet, Imported):
            self._fork()
        elif isinstance(packet, CopyEnded):
            self._copy_ended(packet.status)

    def _start_server(self) -> None:
        assert self._forking is not None
        first = self._forking.ranks[0]
        try:
            self.server = ForkServer(self._modules, first, self._loop, self._received)
            ends = self._forking.first_ends()
            self.server.start((self._null, *ends[1:]), self._files_limit)
        except (OSError, SpawnError):  # of which the ranks themselves will tell
            self.drop()
            self.server = None
            self._forking.refuse_all()
            self._over()

    def _start_anew(self) -> None:
        """The server of the attempts before does not do for this one: have another."""
        assert self._forking is not None
        if self.server is not None:
            self.server.hang_up()
        self._is_reused = False
        self._forking = self._forking.anew()
        self._start_server()

    def _fork(self) -> None:
        assert self.server is not None and self._forking is not None
        try:
            packets = self.server.copy(self._loop, self._forking.received)
        except ConnectionError:  # it has ended, which is about to be seen
            return
        except OSError as error:  # too many files
            self._forking.refuse_all(str(error.strerror))
            self._over()
            return
        self._forking.begin(packets, self.server.first[1])

    def _copy_ended(self, status: int) -> None:
        assert self._forking is not None
        self._forking.receive_all()
        if self._is_reused and self._forking.first_refused:
            self._start_anew()
            return
        if not self._forking.is_complete:
            self._forking.refuse_all(f"the importing process {_fate(status)}")
        self._over()

    def _over(self) -> None:
        forking, self._forking = self._forking, None
        assert forking is not None
        seconds = self.server.seconds if self.server is not None and not self._is_reused else 0.0
        if self.server is None or not self.server.alone or not self._keeps:
            self.drop()
        forking.end()
        self._on_end(forking.outcome, seconds)


def _fate(status: int) -> str:
    return f"was killed by {signal_name(-status)}" if status < 0 else f"exited ({status})"

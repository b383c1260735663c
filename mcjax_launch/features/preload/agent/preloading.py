"""--preload on one host: a fork server imports modules, and the ranks are forked from it."""

from __future__ import annotations

import os

from ....kernel.agent.stacks import Importer
from ....kernel.agent.system import system
from ....kernel.agent.system.unix import SpawnError
from ....kernel.wire.program_check import executable
from ....kernel.wire.signals import signal_name
from ..messages import Different, Forked, ImportBegins, Imported, Unfit
from .fork_server import ForkServerLink

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....kernel.wire.loop import Loop
    from ....kernel.wire.messages import RankOrder
    from ....kernel.wire.ulimits import Limit
    from ..messages import ForkMessage
    from .fork_server import Wanted
    from .forking import Forking, ForkResult

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
    """Has the ranks of this host forked, as far as that can be done.

    Args:
        modules: to be imported.
        forking: has the ranks.
        loop: to wait in.
        on_importing: called with each module that is about to be imported.
        on_end: called once, unless this is abandoned before, with how it went.

    """

    def __init__(
        self,
        modules: Sequence[str],
        forking: Forking,
        loop: Loop,
        *,
        on_importing: Callable[[str], None],
        on_end: Callable[[ForkResult], None],
    ) -> None:
        self._modules = ",".join(modules)
        self._forking: Forking | None = forking  # under way
        self._loop = loop
        self._on_importing = on_importing
        self._on_end = on_end
        self._server: ForkServerLink | None = None  # its process has not been reaped
        self._dump_signals = (0, 0)  # what has it send its stack, and those of all threads
        self._unfit = ""
        self._importer: Importer | None = None  # that has been asked for its stack

    def begin(self, null: int, files_limit: Limit | None) -> None:
        """Start the server.

        Args:
            null: a descriptor of /dev/null.
            files_limit: see `System.spawn`.

        """
        assert self._forking is not None
        ranks = self._forking.ranks
        if reason := reason_against(ranks):
            self._forking.refuse_all(reason, expected=system.forks_ranks)
            self._over()
            return
        try:
            self._server = ForkServerLink(self._modules, ranks[0], self._loop, self._received)
            ends = self._forking.first_ends()
            self._server.start((null, *ends[1:]), files_limit)
        except (OSError, SpawnError):  # of which the ranks themselves will tell
            if self._server is not None:
                self._server.hang_up()
                self._server = None
            self._forking.refuse_all()
            self._over()

    @property
    def is_under_way(self) -> bool:
        """Whether there may be children that will be ranks, and are not yet."""
        return self._forking is not None

    def is_server(self, pid: int) -> bool:
        """Whether this is the server's process, of which `look` takes care."""
        return self._server is not None and self._server.pid == pid

    @property
    def importing(self) -> dict[int, int]:
        """The pid of the server, as that of the first rank, while the ranks wait for it."""
        if self._forking is None or self._server is None:
            return {}
        return {self._server.pid: self._forking.ranks[0][0].process_id}

    def request_stacks(self, all_threads: bool) -> list[Importer]:
        """Ask what imports for its stack, if it can be asked; see HookServer."""
        for pid, rank in self.importing.items():
            signum = self._dump_signals[all_threads]
            if system.handles(pid, signum):
                self._importer = Importer(rank, pid)
                system.signal_process(pid, signum)
                return [self._importer]
        return []

    def look(self) -> None:
        """See whether the server has ended: before any other child is looked at.

        A rank that has ended already is a child of this process from the same moment on.
        """
        status = self._server.status() if self._server is not None else None
        if status is None:
            return
        self._server = None
        if self._forking is None:
            return
        if not self._forking.is_complete:
            self._forking.refuse_all(self._unfit or f"the importing process {_fate(status)}")
        self._over()

    def abandon(self) -> None:
        """The ranks are not wanted any more: what is not one yet will end."""
        if self._forking is not None:
            self._forking.close()
            self._forking = None
        if self._server is not None:
            self._server.hang_up()

    def _received(self, packet: ForkMessage | str) -> None:
        if self._forking is None:
            return
        if isinstance(packet, str):
            if self._importer is not None:
                self._importer.take(packet)
        elif isinstance(packet, ImportBegins):
            self._dump_signals = packet.dump_signal, packet.dump_all_signal
            self._on_importing(packet.module)
        elif isinstance(packet, Unfit):
            self._unfit = packet.reason
        elif isinstance(packet, Imported):
            assert self._server is not None
            self._forking.begin(self._server, packet.seconds)
        elif isinstance(packet, (Forked, Different)):
            self._forking.received(packet)

    def _over(self) -> None:
        forking, self._forking = self._forking, None
        assert forking is not None
        forking.end()
        self._on_end(forking.outcome)


def _fate(status: int) -> str:
    return f"was killed by {signal_name(-status)}" if status < 0 else f"exited ({status})"

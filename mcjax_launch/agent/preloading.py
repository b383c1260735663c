"""--preload on one host: a fork server imports modules, and the ranks are forked from it.

The agent asks for one rank after another, and closes the connection. The server ends, and its
children become the agent's, which adopts orphans. Each waits for a byte before it begins: it comes
when all ranks are the agent's own. Ranks that cannot be forked are left to be started afresh.
"""

from __future__ import annotations

import os
import signal
import socket

from ..protocol import hook_environ
from ..protocol.codec import Malformed, Tagged, from_json, to_json
from ..protocol.fork_messages import Change, Different, Fork, Forked, Imported, Unfit
from ..protocol.loop import READ, Loop
from ..protocol.messages import Preloaded, StartedAfresh
from ..protocol.program_check import executable
from .system import system
from .system.unix import SpawnError

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..protocol.codec import Message
    from ..protocol.messages import RankOrder
    from ..protocol.ulimits import Limit

    #: A rank, and its whole environment.
    Wanted = tuple[RankOrder, dict[str, str]]

_MOST_PACKET = 1 << 16
_ELF = b"\x7fELF"


class Outcome:
    """How it went.

    Attributes:
        seconds: that the imports have taken.
        forked: pids of the ranks that have been forked, by rank.
        afresh: those that have to be started otherwise.

    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.forked: dict[int, int] = {}
        self.afresh: list[Wanted] = []
        self._reasons: dict[str, list[int]] = {}
        self._expected: set[str] = set()

    def refuse(self, ranks: Iterable[Wanted], reason: str, *, expected: bool = False) -> None:
        """Have these started afresh."""
        for wanted in ranks:
            self.afresh.append(wanted)
            self._reasons.setdefault(reason, []).append(wanted[0].process_id)
        if expected:
            self._expected.add(reason)

    def reports(self) -> Iterator[Message]:
        """What the launcher is to know of that."""
        if self.forked:
            yield Preloaded(tuple(self.forked), self.seconds)
        for reason, ranks in self._reasons.items():
            yield StartedAfresh(tuple(ranks), reason, reason in self._expected)


def reason_against(rank: RankOrder, environ: dict[str, str]) -> str:
    """Why a program can certainly not be forked by its own Python; "" if it may."""
    if not system.forks_ranks:
        return "it needs Linux"
    path = executable(rank.argv[0], rank.cwd, environ.get("PATH", os.defpath))
    try:
        with open(path or rank.argv[0], "rb") as file:
            return "" if file.read(len(_ELF)) == _ELF else f"{rank.argv[0]} is a script"
    except OSError:
        return "its command cannot be read"


class Preloading:
    """Forks the ranks of this host, as far as that can be done.

    Args:
        modules: to be imported.
        ranks: to be forked, at least one.
        folder: the job's private one.
        loop: calls when the server says something.
        standard: makes the streams of a rank; gives the ends that are to be its 0, 1 and 2.
        on_forked: called with each rank that has been forked, and its pid, before it begins.
        on_end: called once, unless it is abandoned before, with how it went.

    """

    def __init__(
        self,
        modules: Sequence[str],
        ranks: Sequence[Wanted],
        folder: str,
        loop: Loop,
        standard: Callable[[RankOrder], tuple[int, int, int]],
        on_forked: Callable[[int, int], None],
        on_end: Callable[[Outcome], None],
    ) -> None:
        self._modules = ",".join(modules)
        self._ranks = list(ranks)
        self._loop = loop
        self._standard = standard
        self._on_forked = on_forked
        self._on_end = on_end
        self._ahead = list(ranks)
        self._asked: tuple[Wanted, tuple[int, ...]] | None = None  # with its streams
        self._outcome = Outcome()
        self._unfit = ""
        self._pid = 0
        self._is_over = False
        self._first_ends: tuple[int, ...] | None = None
        self._path = os.path.join(folder, "fork")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection: socket.socket | None = None
        # What the forked ranks read from before they begin.
        self._start, self._starting = os.pipe()

    def begin(self, null: int, files_limit: Limit | None) -> None:
        """Start the server: the command of the first rank, in its environment and streams.

        Args:
            null: a descriptor of /dev/null.
            files_limit: see `System.spawn`.

        """
        rank, environ = self._ranks[0]
        if any(hook_environ.WRAPPED in environ for _, environ in self._ranks):
            reason = "ranks run under --wrap"
        else:
            reason = reason_against(rank, environ)
        if reason:
            self._outcome.refuse(self._ranks, reason, expected=system.forks_ranks)
            self._end()
            return
        self._server.bind(self._path)
        self._server.listen(1)
        self._loop.watch(self._server.fileno(), READ, lambda ready: self._accept())
        order = f"{self._modules}:{self._path}"
        environ = {**environ, hook_environ.FORK_SERVER: order}
        try:
            self._first_ends = self._standard(rank)
            ends = (null, *self._first_ends[1:])
            self._pid = system.spawn(rank.argv, environ, rank.cwd, ends, (), files_limit)
        except (OSError, SpawnError):  # of which the ranks themselves will tell
            self._outcome.afresh = self._ranks
            self._end()

    @property
    def importing(self) -> dict[int, int]:
        """The pid of the server, as that of the first rank; nothing when it is gone."""
        return {self._pid: self._ranks[0][0].process_id} if self._pid and not self._is_over else {}

    def look(self) -> None:
        """See whether the server has ended: before any other child is looked at.

        A rank that has ended already is a child of this process from the same moment on.
        """
        if self._is_over or not self._pid:
            return
        status = system.status_of(self._pid)
        if status is None:
            return
        self._receive_all()
        system.reap(self._pid)
        self._server_ended(status)

    def abandon(self) -> None:
        """The ranks are not wanted any more: the server, and what it has forked, will end."""
        if not self._is_over:
            self._is_over = True
            self._close()

    def _server_ended(self, status: int) -> None:
        if self._ahead or self._asked is not None:
            reason = self._unfit or f"the importing process {_fate(status)}"
            self._outcome = Outcome()
            self._outcome.refuse(self._ranks, reason)
        self._end()

    def _end(self) -> None:
        self._is_over = True
        for rank, pid in self._outcome.forked.items():
            self._on_forked(rank, pid)
        os.write(self._starting, b"." * len(self._outcome.forked))
        self._close()
        self._on_end(self._outcome)

    def _close(self) -> None:
        """Close all that is open; forked ranks that have not begun will not."""
        self._hang_up()
        self._settle()
        self._loop.forget(self._server.fileno())
        self._server.close()
        for fd in (self._start, self._starting, *(self._first_ends or ())):
            os.close(fd)

    # --- the connection ---

    def _accept(self) -> None:
        self._connection, _ = self._server.accept()
        self._connection.setblocking(False)
        self._loop.watch(self._connection.fileno(), READ, lambda ready: self._receive())

    def _receive_all(self) -> None:
        if self._connection is None and not self._is_over:
            self._server.setblocking(False)
            try:
                self._accept()
            except BlockingIOError:
                return
        while self._connection is not None and self._receive():
            pass

    def _receive(self) -> bool:
        """Handle what the server says; whether there may be more."""
        assert self._connection is not None
        try:
            data = self._connection.recv(_MOST_PACKET)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:  # its end says more
            self._hang_up()
            return False
        try:
            message = Tagged.of_family(from_json(data.decode("utf-8", "replace")))
        except Malformed:
            return True
        if isinstance(message, Unfit):
            self._unfit = message.reason
        elif isinstance(message, Imported):
            self._outcome.seconds = message.seconds
            self._ask()
        elif isinstance(message, (Forked, Different)) and self._asked is not None:
            self._answered(message)
            self._ask()
        return True

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._loop.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _ask(self) -> None:
        """Ask for the next rank; after the last hang up, with which the server ends."""
        while self._ahead:
            wanted = self._ahead.pop(0)
            try:
                self._ask_for(*wanted)
            except OSError as error:  # too many files, or too large an environment
                self._settle()
                self._outcome.refuse([wanted], str(error.strerror))
            else:
                return
        self._hang_up()

    def _ask_for(self, rank: RankOrder, environ: dict[str, str]) -> None:
        ends, self._first_ends = self._first_ends or self._standard(rank), None
        self._asked = (rank, environ), ends
        order = Fork(rank.argv, _changes(self._ranks[0][1], environ), rank.cores)
        assert self._connection is not None
        socket.send_fds(self._connection, [to_json(order).encode()], [*ends, self._start])

    def _answered(self, message: Forked | Different) -> None:
        assert self._asked is not None
        wanted, _ = self._asked
        self._settle()
        if isinstance(message, Forked):
            self._outcome.forked[wanted[0].process_id] = message.pid
        else:
            self._outcome.refuse([wanted], message.reason)

    def _settle(self) -> None:
        """The rank that was asked for has the ends of its streams, or does not need them."""
        for fd in self._asked[1] if self._asked is not None else ():
            os.close(fd)
        self._asked = None


def _fate(status: int) -> str:
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited ({status})"


def _changes(first: dict[str, str], own: dict[str, str]) -> tuple[Change, ...]:
    """What is different in a rank's environment."""
    names = sorted({*first, *own})
    return tuple(Change(n, own.get(n)) for n in names if own.get(n) != first.get(n))

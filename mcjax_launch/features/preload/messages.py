"""Messages between an agent and the import server of its host, one packet of JSON each.

The import server is a rank's Python that stops before the program, imports what is asked for, and
forks the ranks from there.
"""

from __future__ import annotations

from ...kernel.wire.codec import Message
from ...kernel.wire.hook_messages import HookMessage
from ...kernel.wire.messages import ToAgent, ToLauncher
from ...kernel.wire.rank_process import RankSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "preload"


class ForkMessage(Message):
    """Message between an agent and an import server."""


# --- import server to agent ---


class ImportBegins(ForkMessage):
    """The import server begins to import a module.

    On `dump_signal` it sends the stack of its main thread, as text; on `dump_all_signal` those of
    all threads. 0: there is no such signal.
    """

    module: str
    dump_signal: int
    dump_all_signal: int


class Imported(ForkMessage):
    """The import server has imported all modules in this many seconds, and can fork."""

    seconds: float


class NotForked(ForkMessage):
    """The import server cannot fork a rank; before `Imported`: any rank, and it has ended."""

    reason: str


class Forked(ForkMessage):
    """A rank has been forked; it waits for a byte on its last descriptor before it begins."""

    pid: int


# --- agent to import server ---


class Fork(ForkMessage):
    """Fork a rank; its descriptors 0, 1 and 2 come along, and a descriptor to wait on.

    Args:
        argv: its command; only the program's arguments may differ from the import server's command.
        changes: its variables that differ from the import server's; None: unset.
        settings: of its process.
        cwd: its working directory.

    """

    argv: tuple[str, ...]
    changes: dict[str, str | None]
    settings: RankSettings
    cwd: str


class Stay(ForkMessage):
    """Fork a successor of this import server; its connection to the agent comes along."""


class SetTooLate(HookMessage):
    """The program has changed variables too late for a package that --preload had imported.

    `variables` are changed variables that the package's import has read; or `sys.path`, if the
    program would now find other modules. `afresh`: the rank starts afresh because of that, which
    is possible as long as it has had no visible effect.
    """

    package: str
    variables: tuple[str, ...]
    afresh: bool


class Preload(ToAgent):
    """Import modules once, in a process that then forks the ranks; sent before the start.

    `libraries`: import only if PROGRAM imports one of these, and only without visible effects.
    """

    modules: tuple[str, ...]
    libraries: tuple[str, ...]


class Importing(ToLauncher):
    """The import server begins to import a module (--preload)."""

    module: str


class Preloaded(ToLauncher):
    """Ranks have been forked after so many seconds of imports; 0: imported earlier (--preload).

    `why`: what in PROGRAM was the reason, if the user did not ask for --preload.
    """

    ranks: tuple[int, ...]
    seconds: float
    why: str

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return self.ranks


class ImportsAgain(ToLauncher):
    """The import server of an earlier run cannot fork the ranks (--preload)."""

    reason: str


class StartedAfresh(ToLauncher):
    """Ranks have not been forked (--preload).

    `expected`: such a command can never be forked, so the user can do nothing about it.
    """

    ranks: tuple[int, ...]
    reason: str
    expected: bool = False

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return self.ranks

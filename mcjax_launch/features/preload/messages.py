"""Messages between an agent and the fork server of its host, one packet of JSON each.

The fork server is a rank's Python that stops before the program, imports what is asked for, and
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
    """Any of the messages below."""


# --- fork server to agent ---


class ImportBegins(ForkMessage):
    """It begins to import a module.

    `dump_signal` has it send its stack, as text, `dump_all_signal` those of all threads; 0: none
    does.
    """

    module: str
    dump_signal: int
    dump_all_signal: int


class Imported(ForkMessage):
    """The modules are imported, within so many seconds: it can fork."""

    seconds: float


class NotForked(ForkMessage):
    """It cannot fork this rank, for this reason; before Imported: none, and it has ended."""

    reason: str


class Forked(ForkMessage):
    """A rank has been forked; it waits for a byte on its last descriptor before it begins."""

    pid: int


# --- agent to fork server ---


class Fork(ForkMessage):
    """Fork a rank; with it come its descriptors 0, 1 and 2, and the one to wait on.

    Args:
        argv: its command, which differs in the program's arguments at most.
        changes: its variables that are not what the fork server was started with; None: unset.
        settings: of its process.
        cwd: its working directory.

    """

    argv: tuple[str, ...]
    changes: dict[str, str | None]
    settings: RankSettings
    cwd: str


class Stay(ForkMessage):
    """Fork an heir: it forks ranks as this one has, over the connection that comes with it."""


class SetTooLate(HookMessage):
    """A package that --preload had imported has not seen what the program has set since.

    `variables` are those that its import has read; or `sys.path`, by which the program would find
    another. `afresh`: so the rank starts afresh, of which nothing has been seen yet.
    """

    package: str
    variables: tuple[str, ...]
    afresh: bool


class Preload(ToAgent):
    """Before the start: import these once, in a process from which the ranks are forked.

    `libraries`: only where PROGRAM imports one of these, and nothing can be seen of it.
    """

    modules: tuple[str, ...]
    libraries: tuple[str, ...]


class Importing(ToLauncher):
    """The process from which ranks are to be forked begins to import a module (--preload)."""

    module: str


class Preloaded(ToLauncher):
    """These ranks have been forked, after so many seconds of imports; 0: again (--preload).

    `why`: what PROGRAM has for that, if it was not asked for.
    """

    ranks: tuple[int, ...]
    seconds: float
    why: str

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return self.ranks


class ImportsAgain(ToLauncher):
    """The process that has imported for an earlier run cannot fork the ranks (--preload)."""

    reason: str


class StartedAfresh(ToLauncher):
    """These ranks have not been forked (--preload).

    `expected`: the command is one that cannot be, about which nothing can be done.
    """

    ranks: tuple[int, ...]
    reason: str
    expected: bool = False

    @property
    def about(self) -> Iterable[int]:
        """The ranks of which it says something."""
        return self.ranks

"""Messages between an agent and the import server of its host, one packet of JSON each.

The import server is a rank's Python that stops before the program, imports what is asked for, and
forks the ranks from there.
"""

from __future__ import annotations

from ...wire.codec import Message
from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent, ToLauncher
from ...wire.rank_process import RankSettings

NAME = "preload"


class ForkMessage(Message):
    """Message between an agent and an import server."""


# --- import server to agent ---


class ImportBegins(ForkMessage):
    """Notice that the import server begins to import a module."""

    module: str


class Imported(ForkMessage):
    """Notice that the import server has imported all modules, after `seconds`, and can fork."""

    seconds: float


class NotForked(ForkMessage):
    """Refusal to fork a rank; before `Imported`: to fork any rank, and the server has ended."""

    reason: str


class Forked(ForkMessage):
    """Notice that a rank has been forked; it begins when its last descriptor gets a byte."""

    pid: int


# --- agent to import server ---


class Fork(ForkMessage):
    """Order to fork a rank, sent with its descriptors 0, 1 and 2 and a descriptor to wait on.

    Args:
        argv: command; only the program's arguments may differ from the import server's command.
        changes: variables in which the rank differs from the server; None for unset variables.
        settings: settings of its process.
        cwd: working directory.

    """

    argv: tuple[str, ...]
    changes: dict[str, str | None]
    settings: RankSettings
    cwd: str


class SetTooLate(HookMessage):
    """Notice that a program changed variables too late for a package imported by --preload.

    `variables` are changed variables that the package's import has read; or `sys.path`, if the
    program would now find other modules. `afresh`: the rank starts afresh because of that, which
    is possible as long as it has had no visible effect.
    """

    package: str
    variables: tuple[str, ...]
    afresh: bool


class Preload(ToAgent):
    """Order, before the start, to import modules in a process that then forks the ranks.

    `libraries`: import only if PROGRAM imports one of these, and only without visible effects.
    """

    modules: tuple[str, ...]
    libraries: tuple[str, ...]


class Importing(ToLauncher):
    """Notice that the import server begins to import a module (--preload)."""

    module: str


class Preloaded(ToLauncher):
    """Notice of ranks forked after `seconds` of imports.

    `why`: reason found in PROGRAM; "" if the user asked for --preload.
    """

    ranks: tuple[int, ...]
    seconds: float
    why: str


class StartedAfresh(ToLauncher):
    """Notice of ranks that are started without forking (--preload)."""

    ranks: tuple[int, ...]
    reason: str

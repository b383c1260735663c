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

#: Beginnings of the names of variables that Python or the C library reads when a process starts.
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "TZ", "LOCALTIME")
#: Beginnings of the names of variables that JAX reads when it is imported. (XLA_FLAGS and LIBTPU_*
#: are read when the first backend is made.)
READ_BY_JAX = ("JAX_",)
#: The same of libraries in C that JAX needs: seen with a stand-in for getenv().
READ_BY_LIBRARIES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NPY_", "NUMPY_"),
    *("TF_CPP_", "GRPC_"),
)


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
    """Notice that a program changed variables of JAX, or sys.path, after JAX was preloaded."""

    names: tuple[str, ...]


class Preload(ToAgent):
    """Order, before the start, to import modules in a process that then forks the ranks.

    `libraries`: import only if PROGRAM imports one of these, and sets nothing that they read.
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

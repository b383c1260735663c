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
#: The same of libraries in C that JAX needs, read when they are imported: seen with a stand-in for
#: getenv(). (XLA_FLAGS and LIBTPU_* are read when JAX makes the first backend.)
READ_BY_LIBRARIES = (
    *("OMP_", "GOMP_", "KMP_AFFINITY", "KMP_BLOCKTIME", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_"),
    *("NPY_", "NUMPY_", "TF_CPP_", "GRPC_", "GCS_", "MPITRAMPOLINE_", "TPU_LIBRARY_PATH"),
)
#: The same of imports of jax. From most of JAX's own, JAX only sets a flag.
READ_AT_IMPORT = (
    *("JAX_", "JAX2TF_", "CHECK_VMA", "EAGER_CONSTANT_FOLDING"),
    *READ_BY_LIBRARIES,
)
#: A rank's coordinates are read later.
COORDINATES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


class ForkMessage(Message):
    """Message between an agent and an import server."""


# --- import server to agent ---


class ImportBegins(ForkMessage):
    """Notice that the import server begins to import a module."""

    module: str


class Imported(ForkMessage):
    """Notice that the imports are over, after `seconds`; `why_not`: why no rank can be forked."""

    seconds: float
    why_not: str


class Forked(ForkMessage):
    """Answer to Fork: the rank's pid; 0 if it was not forked, and why.

    The rank begins when its last descriptor gets a byte.
    """

    pid: int
    why_not: str = ""


# --- agent to import server ---


class Fork(ForkMessage):
    """Order to fork a rank, sent with its descriptors 0, 1 and 2 and a descriptor to wait on.

    Args:
        argv: command.
        same: number of its first words that are those of the import server's command.
        changes: variables in which the rank differs from the server; None for unset variables.
        settings: settings of its process.
        cwd: working directory.

    """

    argv: tuple[str, ...]
    same: int
    changes: dict[str, str | None]
    settings: RankSettings
    cwd: str


class SetTooLate(HookMessage):
    """Notice that a program changed what JAX's import depends on after JAX was preloaded.

    `names`: of variables and modules, or sys.path.
    """

    names: tuple[str, ...]


class Preload(ToAgent):
    """Order, before the start, to import modules in a process that then forks the ranks.

    `auto`: import only if PROGRAM imports JAX, and changes nothing on which that import depends.
    """

    modules: tuple[str, ...]
    auto: bool


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

"""Messages about the folders of compiled programs, and about what ranks obtain from them."""

from __future__ import annotations

from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent, ToLauncher

NAME = "compile_once"


class ShareCompiled(ToAgent):
    """Order, before the start, to let the ranks of this host share what they compile.

    Args:
        mode: "auto" for programs on CPU devices only, "on" for all.
        folder: absolute path of the folder of --compile-cache; "" if there is none.
        size: maximum size of the folder's programs, in bytes; 0 for no limit.

    """

    mode: str
    folder: str
    size: int


class NoCache(ToLauncher):
    """Notice that the folder of --compile-cache cannot be used on this host, and why."""

    reason: str


class CannotLimit(HookMessage):
    """Notice that JAX lacks the package that limits the folder of --compile-cache to a size."""


class Obtained(HookMessage):
    """Notice that a rank has compiled a program, or loaded a compiled program.

    Args:
        is_loaded: True if the program was loaded.
        seconds: duration of compiling, for a loaded program less the duration of loading: JAX keeps
            whole seconds.

    """

    is_loaded: bool
    seconds: float


class Awaits(HookMessage):
    """Notice that a rank waits while another rank compiles its program, or that the wait is over.

    Args:
        rank: the rank that compiles; -1 if the wait is over, or the rank is unknown.

    """

    rank: int

"""What a host is told about the folders of compiled programs, and what ranks report of them."""

from __future__ import annotations

from ...kernel.wire.hook_messages import HookMessage
from ...kernel.wire.messages import ToAgent, ToLauncher

NAME = "compile_once"


class ShareCompiled(ToAgent):
    """Before the start: let the ranks of this host share what they compile.

    Args:
        mode: "auto" for programs on CPU devices alone, "on" for all.
        folder: of --compile-cache, absolute; "" if there is none.
        size: the most bytes that are kept in it.

    """

    mode: str
    folder: str
    size: int


class NoCache(ToLauncher):
    """The folder of --compile-cache cannot be used on this host, and why."""

    reason: str


class Obtained(HookMessage):
    """A rank has compiled a program, or loaded what had been compiled.

    Args:
        is_loaded: it was loaded.
        seconds: that compiling took; of a loaded program, less those that loading took.

    """

    is_loaded: bool
    seconds: float


class Awaits(HookMessage):
    """A rank waits while another one compiles the program that it needs; or the wait is over.

    Args:
        rank: the one that compiles; -1 if the wait is over, or that is unknown.

    """

    rank: int

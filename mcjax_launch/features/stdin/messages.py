"""How the launcher's standard input reaches the ranks that read it."""

from __future__ import annotations

from ...kernel.wire.messages import ToAgent, ToLauncher

NAME = "stdin"
#: So many bytes of it may be on their way to a host.
INPUT_WINDOW = 1 << 18


class TakenBy(ToAgent):
    """Before the start: these ranks of the host get the launcher's standard input."""

    ranks: tuple[int, ...]


class InputEnds(ToAgent, ToLauncher):
    """The launcher's standard input has ended; or, to it, no rank of the host takes any more."""

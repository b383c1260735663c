"""Messages that bring the launcher's standard input to ranks."""

from __future__ import annotations

from ...wire.messages import ToAgent, ToLauncher

NAME = "stdin"
#: Most bytes of input that may be on their way to a host.
INPUT_WINDOW = 1 << 18


class InputRanks(ToAgent):
    """Notice, before the start, of the ranks of the host that get the launcher's standard input."""

    ranks: tuple[int, ...]


class InputEnds(ToAgent, ToLauncher):
    """Notice that the input has ended or, to the launcher, that no rank here reads it any more."""

"""Messages that bring the launcher's standard input to rank 0."""

from __future__ import annotations

from ...wire.messages import ToAgent, ToLauncher

NAME = "stdin"
#: Most bytes of input that may be on their way to the host.
INPUT_WINDOW = 1 << 18


class InputRank(ToAgent):
    """Notice, before the start, that rank 0 is on the host and gets the launcher's input."""


class InputEnds(ToAgent, ToLauncher):
    """Notice that the input has ended or, to the launcher, that rank 0 reads no more."""

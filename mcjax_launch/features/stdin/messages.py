"""How the launcher's standard input reaches the ranks that read it."""

from __future__ import annotations

from ...kernel.wire.codec import Malformed
from ...kernel.wire.messages import ToAgent, ToLauncher

NAME = "stdin"
#: So many bytes of it may be on their way to a host.
INPUT_WINDOW = 1 << 18


class TakenBy(ToAgent):
    """Before the start: these ranks of the host get the launcher's standard input."""

    ranks: tuple[int, ...]


class InputEnds(ToAgent):
    """The launcher's standard input has ended."""


class InputTaken(ToLauncher):
    """So many more bytes of the input have gone to all ranks that take it."""

    count: int

    def check(self) -> None:
        """Nobody gives bytes back."""
        if self.count < 0:
            raise Malformed(f"{self.count} bytes taken")


class InputUnwanted(ToLauncher):
    """No rank of the host takes input any more."""

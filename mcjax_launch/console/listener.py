"""What the API hears of a running job; the command line has no listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcjax_launch.kernel.wire.codec import Message
    from mcjax_launch.kernel.wire.frames import Raw


class Listener:
    """Called as things happen in a job; ignores all of them.

    Attributes:
        rewrite: what whole lines of a rank's are shown as; None: as they are.

    """

    rewrite: Callable[[bytes], bytes] | None = None

    def message(self, host: str, message: Message) -> None:
        """An agent has sent a message, which the launcher has acted on."""

    def raw(self, frame: Raw) -> None:
        """The part of a feature on a host has sent bytes."""

    def output(self, rank: int, stream: int, data: bytes) -> None:
        """A rank has written something, which may end anywhere in a line."""

    def output_ends(self) -> None:
        """All output of this attempt has come."""

    def said(self, line: str) -> None:
        """The launcher has a line of its own to say."""

"""What functions have led to in the ranks of this host, on its way to the launcher.

A rank leaves it in a file, and may end. The file has no name any more from then on, and is read
as there is room on the way: nothing of it is kept in memory, and all messages overtake it.
"""

from __future__ import annotations

import os

from ...kernel.wire import frames
from . import messages as function_call
from .messages import Returned

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from ...kernel.wire.messages import FromHook
    from ...kernel.wire.uplink import Uplink

_PIECE = 1 << 16


class Returns:
    """Sends one after the other.

    Args:
        folder: the job's private one.
        uplink: the way to the launcher.

    """

    def __init__(self, folder: str, uplink: Uplink) -> None:
        self._folder = folder
        self._uplink = uplink
        self._wants_values = True

    def add(self, said: FromHook, returned: Returned) -> None:
        """A rank has written such a file, and says so."""
        path = function_call.returned_path(self._folder, str(said.rank))
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115, closed by who reads it
            os.unlink(path)
        except OSError:  # some program of the rank's says so
            return
        self._uplink.supply(self._frames(said, returned, file))

    def drop_values(self) -> None:
        """The job is to end otherwise: only exceptions are still of use."""
        self._wants_values = False

    def _frames(self, said: FromHook, returned: Returned, file: BinaryIO) -> Iterator[bytes]:
        with file:
            yield frames.encoded(said)
            while self._wants_values or returned.kind == "raised":
                piece = file.read(_PIECE)
                if not piece:
                    return
                yield frames.content(piece, said.rank)

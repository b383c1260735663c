"""Sends the launcher what functions have returned or raised in the ranks of this host.

A rank leaves it in a file, and may end. The file has no name any more from then on, and is read
as there is room on the way: nothing of it is kept in memory, and all messages overtake it.
"""

from __future__ import annotations

import os

from ...kernel.agent.part import AgentPart
from ...kernel.wire import frames
from . import messages as function_call
from .messages import Returned

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from ...kernel.agent.hook_server import HookConnection
    from ...kernel.agent.part import HostAgent
    from ...kernel.wire.messages import FromHook

_PIECE = 1 << 16


class ReturnedFiles(AgentPart):
    """Sends one after the other."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._folder = agent.folder
        self._uplink = agent.link.uplink
        self._wants_values = True

    def hook_said(self, hook: HookConnection, said: FromHook) -> None:
        """A rank has written such a file, and says so."""
        returned = said.message
        assert isinstance(returned, Returned)
        path = function_call.returned_path(self._folder, str(said.rank))
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115, closed by who reads it
            os.unlink(path)
        except OSError:  # some program of the rank's says so
            return
        self._uplink.send_later(self._frames(said, returned, file))

    def stops(self) -> None:
        """The job is to end otherwise: only exceptions are still of use."""
        self._wants_values = False

    def _frames(self, said: FromHook, returned: Returned, file: BinaryIO) -> Iterator[bytes]:
        with file:
            yield frames.encoded(said)
            while self._wants_values or returned.kind == "raised":
                piece = file.read(_PIECE)
                if not piece:
                    return
                yield frames.raw(function_call.NAME, said.rank, piece)


PART = ReturnedFiles

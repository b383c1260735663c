"""Sends the launcher the return values and exceptions of functions in this host's ranks.

A rank leaves its result in a file, and may end. The agent unlinks the file, and reads it in pieces
as the launcher takes them: so it is never in memory as a whole, and messages overtake it.
"""

from __future__ import annotations

import os

from ...agent.part import AgentPart
from ...wire import frames
from . import messages as function_call
from .messages import Returned

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.messages import FromHook

_PIECE = 1 << 16


class ReturnedFiles(AgentPart):
    """Sender of result files, one after the other."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._folder = agent.folder
        self._uplink = agent.link.uplink
        self._wants_values = True

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Queue the result file that a rank has reported."""
        returned = said.message
        assert isinstance(returned, Returned)
        path = function_call.get_result_path(self._folder, str(said.rank))
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115, _make_frames closes it
            os.unlink(path)
        except OSError:  # a false report, by some program that the rank has started
            return
        self._uplink.send_later(self._make_frames(said, returned, file))

    def on_stop(self) -> None:
        """Stop sending return values: the job ends otherwise, so only exceptions matter."""
        self._wants_values = False

    def _make_frames(self, said: FromHook, returned: Returned, file: BinaryIO) -> Iterator[bytes]:
        with file:
            yield frames.encode_message(said)
            while self._wants_values or returned.kind == "raised":
                piece = file.read(_PIECE)
                if not piece:
                    return
                yield frames.encode_raw(function_call.NAME, said.rank, piece)


PART = ReturnedFiles

"""Calls for this host's ranks, and what their ranks return.

A rank leaves its result in a file, and may end. The agent unlinks the file, and reads it in pieces
as the launcher takes them: so it is never in memory as a whole, and messages overtake it.
"""

from __future__ import annotations

import os
import signal

from ...agent.part import AgentPart
from ...agent.system import system
from ...machine.system import NEW_FILE, write_all
from ...wire import frames
from ...wire.exit_status import HOST_LOST
from ...wire.frames import Raw
from ...wire.messages import Refused
from . import messages as session
from .messages import CallReady, EndCalls, Interrupt, MakeCall, Ready, Returned

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from typing import BinaryIO

    from ...agent.hook_server import HookConnection
    from ...agent.part import HostAgent
    from ...wire.codec import Message
    from ...wire.messages import FromHook

_PIECE = 1 << 16


class HostCalls(AgentPart):
    """Part that hands calls to the ranks' programs, one after another, and sends results back."""

    def __init__(self, agent: HostAgent) -> None:
        super().__init__(agent)
        self._wants_values = True
        self._programs: dict[int, HookConnection] = {}  # by rank, those that make calls
        self._call: MakeCall | None = None  # the latest
        self._making: set[int] = set()  # ranks that make it
        self._file: FileIO | None = None  # of a call that is not complete
        self._path = ""
        self._has_room = True
        self._is_over = False

    # --- calls ---

    def on_message(self, message: Message | Raw) -> None:
        """Store a piece of a call, or carry out the caller's order."""
        if isinstance(message, Raw):
            self._store(message)
        elif isinstance(message, MakeCall):
            self._begin(message)
        elif isinstance(message, Interrupt):
            self._interrupt(message.number)
        elif isinstance(message, EndCalls):
            self._is_over = True
            for program in self._programs.values():
                program.send(message)

    def _store(self, piece: Raw) -> None:
        if not self._has_room:
            return
        try:
            if self._file is None:
                self._file = self._make_file(piece.number)
            write_all(self._file, piece.payload)
        except OSError as error:
            self._has_room = False
            where = f"{os.path.dirname(self.agent.folder)} (TMPDIR)"
            why = f"the arguments of the function, in {where}: {error.strerror}"
            self.agent.link.send(Refused(why, HOST_LOST))

    def _make_file(self, number: int) -> FileIO:
        """Make the file of a call, and remove that of the call before, which is over.

        Raises:
            OSError: there is no room for it.

        """
        if self._path:
            os.unlink(self._path)
        self._path = ""
        path = session.get_call_path(self.agent.folder, number)
        file = open(os.open(path, NEW_FILE, 0o600), "wb", buffering=0)  # noqa: SIM115, see _begin
        self._path = path
        return file

    def _begin(self, call: MakeCall) -> None:
        if self._file is not None:
            self._file.close()
        if not self._has_room:
            return
        self._file, self._call = None, call
        for rank, program in self._programs.items():
            self._give(rank, program)

    def _give(self, rank: int, program: HookConnection) -> None:
        call = self._call
        if call is not None and (call.ranks is None or rank in call.ranks):
            self._making.add(rank)
            program.send(CallReady(call.number, call.ranks))

    def _interrupt(self, number: int) -> None:
        if self._call is not None and self._call.number == number:
            for rank in self._making:
                system.signal_process(self._programs[rank].pid, signal.SIGINT)

    # --- ranks ---

    def on_hook_message(self, hook: HookConnection, said: FromHook) -> None:
        """Give a program that is ready its call, or queue the result file that it reports."""
        if isinstance(said.message, Ready):
            self._programs[said.rank] = hook
            self._give(said.rank, hook)
            if self._is_over:
                hook.send(EndCalls())
        elif isinstance(said.message, Returned):
            self._return(said, said.message)

    def on_hook_loss(self, hook: HookConnection) -> None:
        """Forget a program that has ended."""
        if self._programs.get(hook.rank) is hook:
            del self._programs[hook.rank]
            self._making.discard(hook.rank)

    def _return(self, said: FromHook, returned: Returned) -> None:
        path = os.devnull
        try:
            if returned.sizes:
                path = session.get_result_path(self.agent.folder, str(said.rank), returned.number)
            file = open(path, "rb", buffering=0)  # noqa: SIM115, _make_frames closes it
            if returned.sizes:
                os.unlink(path)
        except OSError:  # a false report, by some program that the rank has started
            return
        self._making.discard(said.rank)
        self.agent.streams.drain(said.rank)  # the call's output goes before its result
        self.agent.link.uplink.send_later(self._make_frames(said, returned, file))

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
                yield frames.encode_raw(session.NAME, said.rank, piece)


PART = HostCalls

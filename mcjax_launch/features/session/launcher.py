"""Calls from the client to the agents, and what ranks return to the client that called them."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, cast

from mcjax_launch.features.session.messages import (
    NAME,
    AskWaiting,
    EndCalls,
    Interrupt,
    MakeCall,
    NotSubmitted,
    Returned,
    Submit,
    Waiting,
)
from mcjax_launch.job.plan import Plan
from mcjax_launch.journal.facts import CallsChanged
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.machine.loop import READ
from mcjax_launch.options import features as declared
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire import exit_status, frames
from mcjax_launch.wire.messages import Exited, FromHook, ToLauncher

if TYPE_CHECKING:
    from mcjax_launch.journal.facts import Stack

# With more unwritten bytes than this the agents send nothing more.
_MOST_QUEUED = 1 << 20
_PIECE = 1 << 16


class ClientCalls(LauncherPart):
    """Part that sends the client's calls to the agents, and results to the client.

    The latest call is kept for the next attempt, and agents pause while the client does not read.
    """

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._held: list[bytes] = []  # results that wait until earlier output is written
        self._held_bytes = 0
        self._making: set[int] = set()  # ranks that make the call
        self._ends = False  # ranks may end: no call follows
        self._latest = 0  # number of the latest call

    def on_begin(self, plan: Plan, now: float) -> None:
        """Begin to read calls; make the call of an earlier attempt again."""
        calls = self.launcher.events.calls
        assert calls is not None
        self.launcher.front.loop.watch(calls.fileno(), READ, lambda ready: self._read())
        if (kept := self.launcher.kept.get(NAME)) is not None:
            self._submit(*cast("tuple[MakeCall, memoryview]", kept), is_last=True)

    # --- from the client ---

    def _read(self) -> None:
        calls = self.launcher.events.calls
        assert calls is not None
        for message in calls.read():
            match message:
                case Submit(number, ranks, is_last):
                    fd = calls.pop_descriptor()
                    content = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
                    os.close(fd)
                    self._submit(MakeCall(number, ranks), content, is_last=is_last)
                case AskWaiting():
                    self.launcher.stacks.request(self.launcher.links, self._report_waiting)
                case Interrupt(number) if number > self._latest:
                    told = NotSubmitted(number)
                    self.launcher.events.values.write((frames.encode_message(told),))
                case Interrupt() | EndCalls():
                    self._ends = isinstance(message, EndCalls)
                    self.launcher.pool.send_all(message)
        if calls.has_ended:
            self.launcher.front.loop.forget(calls.fileno())

    def _submit(self, order: MakeCall, content: memoryview, *, is_last: bool) -> None:
        """Let ranks make a call, whose file has this content, in memory that both share."""
        self.launcher.kept[NAME] = (order, content)
        self._latest = order.number
        self._ends |= is_last
        self._making = set(self.launcher.state.ranks if order.ranks is None else order.ranks)
        self._record_change()
        for link in self.launcher.links:
            pieces = (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))
            link.supply((frames.encode_raw(NAME, order.number, piece) for piece in pieces), order)

    def on_exited(self, exited: Exited, at: float) -> None:
        """End the job if a rank has left it although calls may follow."""
        if exited.status == 0 and not self._ends:
            message = f"rank {exited.rank} exited with 0 in the middle of a session"
            self.launcher.stop(StopReason(message, exit_status.FAILED, rank=exited.rank))

    # --- ranks that wait ---

    def expire(self, now: float) -> None:
        """Pass on held results."""
        self._pass_on()

    def _report_waiting(self, stacks: list[Stack]) -> None:
        picture = declared.load("picture")
        found = picture.find_waiting_ranks(self.launcher.state, stacks) if picture else {}
        waiting = Waiting(tuple(sorted(found)), tuple(dict.fromkeys(found.values())))
        self.launcher.events.values.write((frames.encode_message(waiting),))

    def _record_change(self) -> None:
        """Record whether ranks make a call: ranks that wait for one do not hang."""
        self.launcher.journal.append(CallsChanged(not self._making and not self._ends))

    # --- to the client ---

    def on_message(
        self, link: AgentConnection, message: ToLauncher | frames.Raw, now: float
    ) -> None:
        """Pass on a rank's report of a result, or a piece of a result."""
        if isinstance(message, frames.Raw):
            encoded = frames.encode_raw(message.feature, message.number, message.payload)
        else:
            encoded = frames.encode_message(message)
            if isinstance(message, FromHook) and isinstance(message.message, Returned):
                self._making.discard(message.rank)
                self._record_change()
                self.launcher.console.end_lines(message.rank)
                if not self._making:
                    self.launcher.console.flush()
        self._held.append(encoded)
        self._held_bytes += len(encoded)
        self._pass_on()
        if self._held_bytes + self.launcher.events.values.queued > _MOST_QUEUED:
            link.pause()
            self.launcher.events.values.on_room = self._resume

    def _pass_on(self) -> None:
        """Write results behind the output that came before them, once that is written."""
        if self._held and self.launcher.console.is_settled:
            values = self.launcher.events.values
            values.write(self._held)
            self._held.clear()
            self._held_bytes = 0
            if values.queued <= _MOST_QUEUED:  # it may have been written at once
                self._resume()

    def _resume(self) -> None:
        for link in self.launcher.links:
            link.resume()

    def close(self, now: float) -> None:
        """Read no more calls, because the attempt is over, or the client has left."""
        self.launcher.events.values.write(self._held)
        if (calls := self.launcher.events.calls) is not None:
            self.launcher.front.loop.forget(calls.fileno())


PART = ClientCalls

"""The launcher's side of terminals that attach to a detached job."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcjax_launch.detached import address
from mcjax_launch.detached.messages import (
    AskForStacks,
    DiskFull,
    MoreOutput,
    StatusText,
    StopJob,
    ToDetached,
    ToVisitor,
    Visit,
)
from mcjax_launch.machine.loop import GONE, READ, Loop, find_earliest_deadline
from mcjax_launch.machine.uplink import Uplink
from mcjax_launch.wire.codec import Malformed, to_json

if TYPE_CHECKING:
    from mcjax_launch.machine.loop import Timer

_MOST_READ = 4096


class VisitorStatus:
    """Text of the status row on a visitor's terminal.

    Args:
        send: called with a changed text; returns False if the visitor is too slow for it.
        visit: the visitor's first message.

    Attributes:
        is_live: True if the row is wanted all the time, not only while ranks are awaited.
        table_rows: returns the terminal's number of rows; None if no table of ranks is wanted.

    """

    def __init__(self, send: Callable[[str], bool], visit: Visit) -> None:
        self.is_live = visit.status in ("line", "table")
        self.table_rows = (lambda: visit.rows) if visit.status == "table" else None
        self._send = send
        self._text = ""

    def say(self, text: str, now: float) -> None:  # noqa: ARG002, as StatusLine's
        """Send the visitor the text if it has changed."""
        if text != self._text and self._send(text):
            self._text = text


class Visitor:
    """Attached terminal, or a command that stops the job."""

    def __init__(self, connection: socket.socket, loop: Loop) -> None:
        self.status: VisitorStatus | None = None
        self.progress: Timer | None = None
        self.connection = connection
        self._loop = loop
        self._held = b""
        self._out = os.dup(connection.fileno())  # a loop watches a descriptor for one thing
        self._uplink = Uplink(self._out, loop)

    def send(self, message: ToVisitor) -> None:
        """Send a message, now or when the socket has room."""
        self._uplink.send(to_json(message).encode() + b"\n")

    def send_status(self, text: str) -> bool:
        """Send a status text; return False if the visitor is not reading at present."""
        if self._uplink.empty:
            self.send(StatusText(text))
        return self._uplink.empty

    def notify_of_output(self) -> None:
        """Send the notice of new output, unless earlier messages are unsent."""
        if self._uplink.empty:
            self.send(MoreOutput())

    def read(self) -> list[ToDetached] | None:
        """Return the visitor's new messages; None if it has left or sent an invalid message."""
        try:
            data = self.connection.recv(_MOST_READ)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._held = (self._held + data).split(b"\n")
        try:
            return [ToDetached.of(line.decode("utf-8", "replace")) for line in lines]
        except Malformed:
            return None

    def close(self) -> None:
        """Close the connection."""
        self._uplink.drop()
        self._loop.forget(self.connection.fileno())
        self.connection.close()
        os.close(self._out)


class Visitors:
    """Visitors of a job, and a timer for their status rows.

    Args:
        folder: folder of the job.
        loop: event loop of the launcher.
        stop: called when a visitor asks to end the job.

    Raises:
        OSError: no socket can be made in the folder.

    """

    def __init__(self, folder: str, loop: Loop, stop: Callable[[], object]) -> None:
        self._loop, self._stop = loop, stop
        self._visitors: list[Visitor] = []
        self._make_progress: Callable[[VisitorStatus], Timer] | None = None
        self._show_stacks: Callable[[], object] = lambda: None
        self._listener = address.listen(folder)
        loop.watch(self._listener.fileno(), READ, self._accept)

    def serve(
        self, make_progress: Callable[[VisitorStatus], Timer], show_stacks: Callable[[], object]
    ) -> None:
        """Show an attempt's status to the visitors from now on.

        Args:
            make_progress: makes the timer that updates a visitor's status row.
            show_stacks: called when a visitor asks for the ranks' stacks.

        """
        self._make_progress, self._show_stacks = make_progress, show_stacks
        for visitor in self._visitors:
            self._begin_status(visitor)

    def _accept(self, _: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        if not address.is_own(connection):
            connection.close()
            return
        connection.setblocking(False)
        visitor = Visitor(connection, self._loop)
        self._visitors.append(visitor)
        self._loop.watch(connection.fileno(), READ, lambda ready: self._read(visitor, ready))

    def _read(self, visitor: Visitor, ready: int) -> None:
        said = visitor.read()
        if said is None or (not said and ready & GONE):
            self._leave(visitor)
            return
        for message in said:
            self._act(visitor, message)

    def _act(self, visitor: Visitor, message: ToDetached) -> None:
        match message:
            case Visit():
                if message.status:
                    visitor.status = VisitorStatus(visitor.send_status, message)
                    self._begin_status(visitor)
            case AskForStacks():
                self._show_stacks()
            case StopJob():
                self._stop()

    def _begin_status(self, visitor: Visitor) -> None:
        if visitor.status is not None and self._make_progress is not None:
            visitor.progress = self._make_progress(visitor.status)

    def _leave(self, visitor: Visitor) -> None:
        self._visitors.remove(visitor)
        visitor.close()

    def notify_of_disk(self, *, is_full: bool) -> None:
        """Inform all visitors that the disk is full, or no longer full."""
        for visitor in self._visitors:
            visitor.send(DiskFull(is_full))

    def notify_of_output(self) -> None:
        """Inform all visitors of new output."""
        for visitor in self._visitors:
            visitor.notify_of_output()

    @property
    def deadline(self) -> float | None:
        """Time of the next update of a status row; None if there is none."""
        return find_earliest_deadline(self._progresses)

    def expire(self, now: float) -> None:
        """Update the status rows that are due."""
        for progress in self._progresses:
            progress.expire(now)

    @property
    def _progresses(self) -> list[Timer]:
        progresses = (visitor.progress for visitor in self._visitors)
        return [progress for progress in progresses if progress is not None]

    def close(self) -> None:
        """Close all connections, because the job has ended."""
        self._loop.forget(self._listener.fileno())
        self._listener.close()
        for visitor in self._visitors:
            visitor.close()
        self._visitors.clear()

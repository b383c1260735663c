"""Lines and events of a running job, and their delivery to the program's callbacks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable

# So many bytes of an unfinished line are kept; then they are reported as a line.
_LONGEST = 1 << 20
# With more pending calls in an event loop the job's thread waits, and soon the ranks do.
_MOST_CALLS = 10_000
_CHECK_S = 1.0

if TYPE_CHECKING:
    import asyncio


Stream = Literal["stdout", "stderr"]


class Line(Value):
    """Line printed by a rank.

    Args:
        rank: number of the rank.
        host: name of the rank's host.
        stream: "stdout" or "stderr".
        text: the line without its newline; of a line over 1 MiB, a part.

    """

    rank: int
    host: str
    stream: Stream
    text: str


class Event(Value):
    """Event in a job; kinds and fields have the names that `--events` gives them.

    Args:
        kind: "started": a rank's process runs; "joining": it has called initialize(); "joined":
            initialize() has returned; "failed": its program has failed, as `message` says;
            "ended": its process has ended, with `exit_status`; "note": a line of the launcher's.
        rank: number of the rank; None for "note".
        host: name of the rank's host; "" for "note".
        message: the failure or the end in words, for "failed" and "ended"; else "".
        text: the line, for "note"; else "".
        pid: process id, for "started"; else None.
        exit_status: for "ended": 128 + n if signal n ended the process; else None.

    """

    kind: Literal["started", "joining", "joined", "failed", "ended", "note"]
    rank: int | None = None
    host: str = ""
    message: str = ""
    text: str = ""
    pid: int | None = None
    exit_status: int | None = None


V = TypeVar("V")
OnLine = Callable[[Line], object]
OnEvent = Callable[[Event], object]
#: Calls a function in the thread and at the time that the caller wants.
Deliver = Callable[[Callable[[], object]], object]


def call_now(call: Callable[[], object]) -> None:
    """Make a call immediately, in the current thread."""
    call()


class InLoop:
    """Queue of calls from a job's thread to an asyncio loop, which makes them in order.

    Args:
        loop: the caller's event loop; when it is closed, calls are dropped.

    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._room = threading.Semaphore(_MOST_CALLS)

    def __call__(self, call: Callable[[], object]) -> None:
        """Queue a call; wait if too many calls are pending."""
        while not self._room.acquire(timeout=_CHECK_S) and not self._loop.is_closed():
            pass
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._call, call)

    def _call(self, call: Callable[[], object]) -> None:
        call()
        self._room.release()


class Reporter:
    """Translator of a launcher's reports into Lines and Events for the caller.

    Args:
        on_line: called with each Line; None if the caller wants none.
        on_event: called with each Event; None if the caller wants none.
        deliver: makes these calls, in the thread that the caller wants.
        levels: levels of the launcher's lines to report as "note"; see `journal/kinds.py`.

    Attributes:
        failed: exception that a call has raised, after which no calls follow; else None.
        on_failed: called when a call has raised an exception.

    """

    def __init__(
        self,
        on_line: OnLine | None,
        on_event: OnEvent | None,
        deliver: Deliver = call_now,
        levels: Collection[str] = (),
    ) -> None:
        self.failed: BaseException | None = None
        self.on_failed: Callable[[], object] = lambda: None
        self._on_line = on_line
        self._on_event = on_event
        self._deliver = deliver
        self._levels = levels
        self._hosts: dict[int, str] = {}
        self._unfinished: dict[tuple[int, Stream], bytearray] = {}

    def mute(self) -> None:
        """Report nothing from now on."""
        self._on_line = self._on_event = None

    def report(self, event: dict[str, Any]) -> None:
        """Report one of the launcher's events to the caller, if it is of interest to callers."""
        match event:
            case {"event": "output", "rank": rank, "stream": stream, "text": text}:
                self._add_output(rank, stream, text.encode("utf-8", "surrogateescape"))
            case {"event": "started", "rank": rank, "host": host, "pid": pid}:
                self._hosts[rank] = host
                self._report_event(Event("started", rank, host, pid=pid))
            case {"event": "ended", "rank": rank, "host": host, "message": words} as ended:
                self._report_event(
                    Event("ended", rank, host, words, exit_status=ended["exit_status"])
                )
            case {"event": "joining" | "joined" | "failed" as kind, "rank": rank, "host": host}:
                self._report_event(Event(kind, rank, host, event.get("message", "")))
            case {"event": "note", "text": text, "level": level} if level in self._levels:
                for line in text.split("\n"):
                    self._report_event(Event("note", text=escape_unprintable(line)))
            case {"event": "restart" | "summary"}:
                self.end_lines()

    # --- lines ---

    def _add_output(self, rank: int, stream: Stream, data: bytes) -> None:
        held = self._unfinished.setdefault((rank, stream), bytearray())
        *whole, rest = (bytes(held) + data).split(b"\n")
        held[:] = rest
        for line in whole:
            self._report_line(rank, stream, line)
        while len(held) > _LONGEST:
            self._report_line(rank, stream, bytes(held[:_LONGEST]))
            del held[:_LONGEST]

    def end_lines(self, of: int | None = None) -> None:
        """Report the unfinished lines of a rank; None for all."""
        for (rank, stream), rest in self._unfinished.items():
            if rest and of in (None, rank):
                self._report_line(rank, stream, bytes(rest))
                rest.clear()

    def _report_line(self, rank: int, stream: Stream, line: bytes) -> None:
        if self._on_line is not None:
            text = line.decode("utf-8", "replace")
            self._call(self._on_line, Line(rank, self._hosts.get(rank, ""), stream, text))

    # --- calls ---

    def _report_event(self, event: Event) -> None:
        if self._on_event is not None:
            self._call(self._on_event, event)

    def _call(self, call: Callable[[V], object], value: V) -> None:
        def guarded() -> None:
            if self.failed is not None:
                return
            try:
                call(value)
            except BaseException as error:
                self.failed = error
                self.on_failed()

        self._deliver(guarded)

"""What a running job tells its caller: lines of the ranks, and events; values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from mcjax_launch.console.listener import Listener
from mcjax_launch.kernel.wire import frames, hook_messages, messages
from mcjax_launch.kernel.wire.codec import Message
from mcjax_launch.kernel.wire.exit_status import of_wait
from mcjax_launch.kernel.wire.value import Value

# Bytes of a line without an end that are kept: what comes then is another line.
_LONGEST = 1 << 20
# With more calls than this on their way into a loop the job's thread waits: so do, soon, its ranks.
_MOST_CALLS = 10_000
_LOOK_S = 1.0

if TYPE_CHECKING:
    import asyncio


class Line(Value):
    """A line that a rank has printed.

    Args:
        rank: which one.
        host: where it runs.
        stream: "stdout" or "stderr".
        text: without its newline; over 1 MiB, a part of it.

    """

    rank: int
    host: str
    stream: Literal["stdout", "stderr"]
    text: str


class Event(Value):
    """Something that has happened in a job.

    Args:
        kind: "started": a rank's process runs; "joining": it has called initialize(); "joined":
            initialize() has returned; "failed": its program has failed, as `message` says;
            "ended": its process has ended, with `status`; "said": a line of the launcher's own.
        rank: whose event it is; None for "said".
        host: where that rank runs; "" for "said".
        message: in words.
        pid: of the process that has started.
        status: of the process that has ended: 128 + n if signal n ended it.

    """

    kind: Literal["started", "joining", "joined", "failed", "ended", "said"]
    rank: int | None = None
    host: str = ""
    message: str = ""
    pid: int | None = None
    status: int | None = None


V = TypeVar("V")
OnLine = Callable[[Line], object]
OnEvent = Callable[[Event], object]
OnFrame = Callable[[Message | frames.Raw], object]
#: Calls a function, where and when the caller wants it.
Deliver = Callable[[Callable[[], object]], object]


def at_once(call: Callable[[], object]) -> None:
    """Call it here and now."""
    call()


class InLoop:
    """Takes calls from a job's thread into an event loop, which makes them in order.

    Args:
        loop: of the caller's; if it is closed, nobody is called any more.

    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way = 0
        self._room = threading.Condition()

    def __call__(self, call: Callable[[], object]) -> None:
        """Have it called, soon."""
        with self._room:
            while self._under_way >= _MOST_CALLS and not self._loop.is_closed():
                self._room.wait(_LOOK_S)
            self._under_way += 1
        try:
            self._loop.call_soon_threadsafe(self._call, call)
        except RuntimeError:  # it is closed
            pass

    def _call(self, call: Callable[[], object]) -> None:
        call()
        with self._room:
            self._under_way -= 1
            self._room.notify()


class Reporter(Listener):
    """Makes lines and events of what a launcher tells.

    Args:
        on_line: is given each line, if the caller wants them.
        on_event: is given each event, if the caller wants them.
        deliver: calls these.
        on_frame: is given each message and content of an agent's, at once.

    Attributes:
        failed: what a call has raised: nobody is called any more.
        on_failed: called when that happens.

    """

    def __init__(
        self,
        on_line: OnLine | None,
        on_event: OnEvent | None,
        deliver: Deliver = at_once,
        on_frame: OnFrame | None = None,
    ) -> None:
        self.failed: BaseException | None = None
        self.on_failed: Callable[[], object] = lambda: None
        self._on_line = on_line
        self._on_event = on_event
        self._deliver = deliver
        self._on_frame = on_frame
        self._hosts: dict[int, str] = {}
        self._unfinished: dict[tuple[int, int], bytearray] = {}

    # --- lines ---

    def output(self, rank: int, stream: int, data: bytes) -> None:
        if self._on_line is None:
            return
        held = self._unfinished.setdefault((rank, stream), bytearray())
        *whole, rest = (bytes(held) + data).split(b"\n")
        held[:] = rest
        for line in whole:
            self._tell_line(rank, stream, line)
        while len(held) > _LONGEST:
            self._tell_line(rank, stream, bytes(held[:_LONGEST]))
            del held[:_LONGEST]

    def output_ends(self) -> None:
        for (rank, stream), rest in self._unfinished.items():
            if rest:
                self._tell_line(rank, stream, bytes(rest))
        self._unfinished.clear()

    def _tell_line(self, rank: int, stream: int, line: bytes) -> None:
        if self._on_line is not None:
            shown = line if self.rewrite is None else self.rewrite(line)
            text = shown.decode("utf-8", "replace")
            name: Literal["stdout", "stderr"] = "stdout" if stream == frames.STDOUT else "stderr"
            self._call(self._on_line, Line(rank, self._hosts.get(rank, ""), name, text))

    def raw(self, frame: frames.Raw) -> None:
        if self._on_frame is not None:
            self._on_frame(frame)

    # --- events ---

    def said(self, line: str) -> None:
        self._tell(Event("said", message=line))

    def message(self, host: str, message: Message) -> None:
        if self._on_frame is not None:
            self._on_frame(message)
        match message:
            case messages.Started(rank, pid):
                self._hosts[rank] = host
                self._tell(Event("started", rank, host, f"pid {pid}", pid=pid))
            case messages.Exited(rank, status):
                ended = of_wait(status)
                self._tell(Event("ended", rank, host, f"exit status {ended}", status=ended))
            case messages.FromHook(rank, hook_messages.Joining()):
                self._tell(Event("joining", rank, host))
            case messages.FromHook(rank, hook_messages.Joined()):
                self._tell(Event("joined", rank, host))
            case messages.FromHook(rank, hook_messages.Failed() as failure):
                from mcjax_launch.diagnosis.summary import words

                self._tell(Event("failed", rank, host, words(failure)))

    def _tell(self, event: Event) -> None:
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

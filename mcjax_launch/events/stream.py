"""Events of a run as JSON lines, for a reader that may be slow or leave."""

from __future__ import annotations

import codecs
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.events.events import Events
from mcjax_launch.events.kinds import VERSION
from mcjax_launch.events.sink import Sink, Target
from mcjax_launch.machine.loop import READ, Loop, SignalPipe
from mcjax_launch.wire.frames import STDOUT
from mcjax_launch.wire.signals import ENDING
from mcjax_launch.wire.version import __version__

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.view import Finding
    from mcjax_launch.events.opening import EventsTarget

# With more unwritten bytes than this the ranks are slowed down.
_MOST_QUEUED = 1 << 20


class EventStream(Events):
    """Writer of events as JSON lines; only `finish` blocks.

    Args:
        target: where to write, opened once the run begins.

    """

    is_read = True

    def __init__(self, target: EventsTarget) -> None:
        super().__init__()
        self._user_target = target
        self._pid = os.getpid()  # a run of --watch is a fork, and users signal this process
        self._front: tuple[Loop, SignalPipe] | None = None
        self._target: Target = Target()
        self._early: list[bytes] | None = []  # what is said before the event `job`
        self._decoders: dict[tuple[int, int], codecs.IncrementalDecoder] = {}

    def open(self) -> None:
        self._user_target.open()

    def begin(self, loop: Loop, signals: SignalPipe) -> None:
        if self._front is None:
            self._front, self._target = (loop, signals), Sink(self._user_target.open(), loop)

    def attend(
        self, on_room: Callable[[], None], on_gone: Callable[[OSError | None], None]
    ) -> None:
        self._target.on_room = on_room
        self._target.watch(on_gone)

    @property
    def has_room(self) -> bool:  # type: ignore[override]
        """True if the reader keeps up."""
        return self._target.queued < _MOST_QUEUED

    @property
    def is_written(self) -> bool:  # type: ignore[override]
        """True if all events have been written, or their reader has left."""
        return not self._target.queued

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        """True if everything has been written, or the reader has left."""
        return self.is_written

    def report(self, kind: str, **fields: object) -> None:
        if self._target.gone:
            return
        line = f"{json.dumps({'event': kind, 'time': round(time.time(), 6), **fields})}\n".encode()
        if self._early is None:
            self._target.write((line,))
        elif kind == "job":  # which is the first
            self._target.write((line, *self._early))
            self._early = None
        else:
            self._early.append(line)

    # --- what happens ---

    def report_begin(
        self, job_id: str, program: Sequence[str], ranks: int | None, hosts: Sequence[str]
    ) -> None:
        self.report(
            "job",
            version=VERSION,
            launcher_version=__version__,
            job_id=job_id,
            pid=self._pid,
            program=list(program),
            ranks=ranks,
            hosts=list(hosts),
        )

    def report_finding(self, finding: Finding) -> None:
        since = finding.since
        self.report(
            "finding",
            words=finding.words,
            ranks=list(finding.ranks),
            cure=finding.cure,
            since=None if since is None else round(time.time() - time.monotonic() + since, 3),
            certain=finding.is_certain,
        )

    # --- output ---

    def report_output(self, rank: int, stream: int, data: bytes) -> None:
        # A path that is cut between two pieces is not found: a prompt must not wait for more.
        self._write_output(rank, stream, self.rewrite(data))

    def _write_output(self, rank: int, stream: int, data: bytes, *, final: bool = False) -> None:
        decoder = self._decoders.get((rank, stream))
        if decoder is None:
            decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
            self._decoders[rank, stream] = decoder
        if text := decoder.decode(data, final):
            name = "stdout" if stream == STDOUT else "stderr"
            self.report("output", rank=rank, stream=name, text=text)

    def report_output_end(self) -> None:
        for rank, stream in list(self._decoders):
            self._write_output(rank, stream, b"", final=True)
            del self._decoders[rank, stream]

    # --- the end ---

    def report_failed_start(self, program: Sequence[str], exit_status: int, message: str) -> None:
        if self._front is None:
            if self._user_target.spares_file(exit_status):
                return
            self.begin(Loop(), SignalPipe())
        if self._early is not None:
            self.report_begin("", program, None, ())
        self.report("summary", exit_status=exit_status, message=message)

    def finish(self) -> None:
        if self._front is None:
            return
        loop, signals = self._front
        came: list[int] = []
        loop.watch(signals.fd, READ, lambda ready: came.extend(signals.read()))
        while not self.is_empty and not any(signum in ENDING for signum in came):
            loop.dispatch_ready(None)

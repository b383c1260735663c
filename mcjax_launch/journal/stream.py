"""The journal as JSON lines (--events), for a reader that may be slow or leave."""

from __future__ import annotations

import codecs
import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcjax_launch.journal import facts
from mcjax_launch.journal.ending import NotStarted
from mcjax_launch.journal.events import Events
from mcjax_launch.journal.kinds import VERSION
from mcjax_launch.journal.sink import Sink, Target
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.words import describe_failure, describe_rank_end
from mcjax_launch.machine.loop import READ, Loop, SignalPipe
from mcjax_launch.options import features as declared
from mcjax_launch.wire.frames import STDOUT
from mcjax_launch.wire.hook_messages import Failed, Joined, Joining
from mcjax_launch.wire.signals import ENDING
from mcjax_launch.wire.version import __version__

if TYPE_CHECKING:
    from mcjax_launch.journal.attempt import Attempt, JobOutcome
    from mcjax_launch.journal.opening import EventsTarget
    from mcjax_launch.wire.frames import Data
    from mcjax_launch.wire.messages import Exited, FromHook, Started

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
        self._state = RunState()
        self._attempt: Attempt | None = None  # the last one
        self._began_at: float | None = None
        self._restarts = -1
        self._decoders: dict[tuple[int, int], codecs.IncrementalDecoder] = {}

    def open(self) -> None:
        self._user_target.open()

    def begin(self, loop: Loop, signals: SignalPipe) -> None:
        if self._front is None:
            self._front, self._target = (loop, signals), Sink(self._user_target.open(), loop)

    def attend(
        self,
        state: RunState,
        on_room: Callable[[], None],
        on_gone: Callable[[OSError | None], None],
    ) -> None:
        self._state = state
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

    def _write(self, kind: str, **fields: object) -> None:
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

    # --- facts on the job, in the form that `kinds.py` declares ---

    def on_job_began(self, job: facts.JobBegan, at: float) -> None:
        self._write(
            "job",
            version=VERSION,
            launcher_version=__version__,
            job_id=job.job_id,
            pid=self._pid,
            program=list(job.program),
            ranks=job.ranks,
            hosts=list(job.hosts),
        )

    def on_restarted(self, again: facts.Restarted, at: float) -> None:
        self._write("restart", count=again.count, job_id=again.job_id, hosts=list(again.hosts))

    def on_said(self, said: facts.Said, at: float) -> None:
        self._write("note", text=said.text, level=said.level)

    def on_finding(self, finding: facts.Finding, at: float) -> None:
        since = finding.since
        self._write(
            "finding",
            words=finding.words,
            ranks=list(finding.ranks),
            cure=finding.cure,
            since=None if since is None else round(time.time() - time.monotonic() + since, 3),
            certain=finding.is_certain,
        )

    def on_stacks_shown(self, shown: facts.StacksShown, at: float) -> None:
        self._write("stacks", lines=[*shown.lines, *shown.known])

    def on_counts_due(self, _: facts.CountsDue, at: float) -> None:
        counts = [
            {"rank": rank, "count": run.programs.total, "per_s": run.programs.compute_rate(at)}
            for rank, run in self._state.ranks.items()
            if run.programs.total
        ]
        self._write("programs", ranks=counts)

    # --- facts on a rank ---

    def _write_of_rank(self, kind: str, rank: int, **fields: object) -> None:
        self._write(kind, rank=rank, host=self._state.ranks[rank].host, **fields)

    def on_started(self, started: Started, at: float) -> None:
        self._write_of_rank("started", started.rank, pid=started.pid)

    def on_from_hook(self, told: FromHook, at: float) -> None:
        match told.message:
            case Joining():
                self._write_of_rank("joining", told.rank)
            case Joined():
                self._write_of_rank("joined", told.rank)
            case Failed() as failure if not self._state.ranks[told.rank].was_interrupted:
                self._write_of_rank("failed", told.rank, message=describe_failure(failure))

    def on_exited(self, exited: Exited, at: float) -> None:
        run = self._state.ranks[exited.rank]
        words = describe_rank_end(run)
        self._write_of_rank("ended", exited.rank, exit_status=run.exit_status, message=words)

    def on_gpus_used(self, used: facts.GpusUsed, at: float) -> None:
        gpus = self._state.ranks[used.rank].usage.gpus
        self._write_of_rank("gpus", used.rank, gpus=gpus.list_rows())

    # --- output ---

    def on_data(self, data: Data, at: float) -> None:
        # A path that is cut between two pieces is not found: a prompt must not wait for more.
        self._write_output(data.rank, data.stream, self.rewrite(data.payload))

    def _write_output(self, rank: int, stream: int, data: bytes, *, final: bool = False) -> None:
        decoder = self._decoders.get((rank, stream))
        if decoder is None:
            decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
            self._decoders[rank, stream] = decoder
        if text := decoder.decode(data, final):
            name = "stdout" if stream == STDOUT else "stderr"
            self._write("output", rank=rank, stream=name, text=text)

    def on_output_ended(self, _: facts.OutputEnded, at: float) -> None:
        for rank, stream in list(self._decoders):
            self._write_output(rank, stream, b"", final=True)
            del self._decoders[rank, stream]

    # --- the end ---

    def on_attempt(self, attempt: Attempt, at: float) -> None:
        self._attempt = attempt
        self._restarts += 1
        if self._began_at is None:  # with --watch the wait for a save comes before
            self._began_at = attempt.state.began_at

    def on_job_outcome(self, outcome: JobOutcome, at: float) -> None:
        if self._front is None:
            if self._user_target.spares_file(outcome.status):
                return
            self.begin(Loop(), SignalPipe())
        if self._early is not None:
            self.on_job_began(facts.JobBegan("", outcome.program, None, ()), at)
        told = {"exit_status": outcome.status, "message": outcome.message}
        self._write("summary", **told, **self._make_summary(outcome, at))

    def _make_summary(self, outcome: JobOutcome, at: float) -> dict[str, Any]:
        """Return what the last attempt adds to the event `summary`; {} if it did not begin."""
        record, attempt = declared.load("run_record"), self._attempt
        if record is None or attempt is None or isinstance(attempt.summary.ending, NotStarted):
            return {}
        seconds = at - (self._began_at or at)
        fields: dict[str, Any] = record.make_summary(attempt, outcome, seconds, self._restarts)
        return fields

    def finish(self) -> None:
        if self._front is None:
            return
        loop, signals = self._front
        came: list[int] = []
        loop.watch(signals.fd, READ, lambda ready: came.extend(signals.read()))
        while not self.is_empty and not any(signum in ENDING for signum in came):
            loop.dispatch_ready(None)

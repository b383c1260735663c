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
from mcjax_launch.journal.sink import Sink, Target
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.words import describe_failure, describe_rank_end
from mcjax_launch.machine.loop import READ, Loop, SignalPipe
from mcjax_launch.options import features as declared
from mcjax_launch.wire.exit_status import ENDING
from mcjax_launch.wire.frames import STDOUT
from mcjax_launch.wire.hook_messages import Failed, Joined, Joining
from mcjax_launch.wire.value import Value
from mcjax_launch.wire.version import __version__

if TYPE_CHECKING:
    from mcjax_launch.journal.attempt import Attempt, JobOutcome
    from mcjax_launch.journal.opening import EventsTarget
    from mcjax_launch.wire.frames import Data
    from mcjax_launch.wire.messages import Exited, FromHook, Started


#: Goes up when a field changes its meaning or goes away; a new kind or field does not change it.
VERSION = 1

_RANK = {"rank": "the rank's number", "host": "the name of its host"}


class EventKind(Value):
    """Kind of event.

    Args:
        meaning: sentence that says what has happened.
        fields: meanings of the event's fields other than `event` and `time`, by name.

    """

    meaning: str
    fields: dict[str, str]


#: By the value of `event`; `job` is the first event of a run, `summary` the last.
KINDS = {
    "job": EventKind(
        "A run begins, or could not begin.",
        {
            "version": f"of this format: {VERSION}",
            "launcher_version": "of mcjax-launch",
            "job_id": 'of the first attempt; `""` if the run could not begin',
            "pid": "of the launcher",
            "program": "PROGRAM and its arguments",
            "ranks": "the number of ranks in the whole job, or null if the run could not begin",
            "hosts": "the names of the hosts that get ranks of this launcher",
        },
    ),
    "started": EventKind("A rank's process runs.", {**_RANK, "pid": "of the process"}),
    "joining": EventKind("A rank has called `jax.distributed.initialize()`.", _RANK),
    "joined": EventKind("`jax.distributed.initialize()` has returned in a rank.", _RANK),
    "output": EventKind(
        "A rank has written something.",
        {
            "rank": "the rank's number",
            "stream": '`"stdout"` or `"stderr"`',
            "text": "with its newlines: several lines, or a part of one; bytes that are not "
            "UTF-8 become surrogates, as with Python's `surrogateescape`",
        },
    ),
    "note": EventKind(
        "The launcher has something to say.",
        {
            "text": "one or more lines, without the prefix",
            "level": '`"say"`, `"note"` (not shown with `-q`), `"detail"` (shown with `-v`), '
            '`"summary"`, or `"alarm"`: a summary of a failure',
        },
    ),
    "finding": EventKind(
        "The launcher has found something that explains what the job does; a note says the same.",
        {
            "words": "what happened, in one line",
            "ranks": "the ranks that caused it, the rank to blame first",
            "cure": 'what to do about it, or `""`',
            "since": "since when, in seconds since 1970, or null",
            "certain": "true if the job can never go on, and is ended",
        },
    ),
    "failed": EventKind(
        "The program of a rank has failed; its process may still run.",
        {**_RANK, "message": "in one line"},
    ),
    "ended": EventKind(
        "A rank's process has ended.",
        {
            **_RANK,
            "exit_status": "as a shell would report it",
            "message": "the same in words",
        },
    ),
    "restart": EventKind(
        "The whole job is restarted.",
        {
            "count": "how often it has been restarted, this time included",
            "job_id": "of the new attempt; of the same one for a rank",
            "hosts": "the names of the hosts that get ranks",
        },
    ),
    "gpus": EventKind(
        "What a rank uses of its GPUs of NVIDIA's, every ten seconds.",
        {
            **_RANK,
            "gpus": "each GPU that the rank uses, as `gpu_use` in record.json",
        },
    ),
    "programs": EventKind(
        "How many programs over several processes the ranks have run, every ten seconds.",
        {"ranks": "each rank that has run any: `rank`, `count`, and `per_s` of late or null"},
    ),
    "stacks": EventKind("The stacks of all ranks were requested.", {"lines": "as they are shown"}),
    "summary": EventKind(
        "The run is over, or could not begin: then only the first two fields are there.",
        {
            "exit_status": "of the launcher",
            "message": "how the run ended, in one line",
            "lines": "the summary as it is shown; none if all went well",
            "root_cause": "why the job failed, or null: `message`, `rank` (to blame, or null), "
            "`ranks` (that failed alike), `host`, `exception`, `where`, `traceback`",
            "ranks": "each rank of the last attempt, with its `traceback` and the last "
            "of its `stdout` and `stderr`, as text",
            "hosts": "the names of the hosts of the last attempt",
            "seconds": "how long the run took, with all attempts",
            "restarts": "how often the whole job was restarted",
            "job_id": "of the last attempt",
            "log_dir": "the folder with the log files, or null",
            "record": "the last attempt in the form of the record (record.json), without its ranks",
        },
    ),
}

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

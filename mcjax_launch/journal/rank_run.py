"""Facts about one rank in one run, and the stage that it has reached."""

from __future__ import annotations

import signal
from enum import Enum, auto
from typing import TYPE_CHECKING

from mcjax_launch.journal.gpu_use import RankGpus
from mcjax_launch.wire.exit_status import compute_exit_status
from mcjax_launch.wire.hook_messages import (
    AtBarrier,
    Backend,
    CalledBelow,
    CollectedTests,
    Compiling,
    Failed,
    FailedTest,
    Handling,
    ImportedJax,
    Joining,
    NotJoined,
    UnhandledError,
)
from mcjax_launch.wire.value import Changing, Value, field

if TYPE_CHECKING:
    from mcjax_launch.journal.programs import RanProgram

# --- stages of a job ---
# The picture of a job's places adds a rank's stack to its stage.


class Stage(Enum):
    """A stage that a rank reaches in the job."""

    IMPORTING = auto()  # not forked before another process has finished importing (--preload)
    ABSENT = auto()  # it has not called initialize()
    JOINING = auto()  # in initialize()
    ALONE = auto()  # initialize() has raised an exception, and the program goes on
    INSIDE = auto()  # in the middle of its program
    LEAVING = auto()  # in JAX's exit barrier
    LEFT = auto()  # it has left the JAX job, and still runs
    ENDED = auto()


class ReachedStage(Value):
    """The stage of a rank, with the time of its begin.

    Args:
        stage: the stage.
        since: begin of the stage, in time.monotonic's seconds; None if unknown.
        where: the user's line that called initialize(), while the call runs; else "".

    """

    stage: Stage
    since: float | None = None
    where: str = ""

    @property
    def is_through(self) -> bool:
        """True if the rank is past initialize(), whether it joined, failed to join or ended."""
        return self.stage not in (Stage.IMPORTING, Stage.ABSENT, Stage.JOINING)

    @property
    def waits_for_others(self) -> bool:
        """True if the rank waits for other ranks: in initialize(), or in JAX's exit barrier."""
        return self.stage in (Stage.JOINING, Stage.LEAVING)

    def __str__(self) -> str:
        """Describe the wait of a rank in stage JOINING or LEAVING."""
        if self.stage is Stage.JOINING:
            return "in initialize()" + (f" at {self.where}" if self.where else "")
        return "in JAX's exit barrier"


# --- one rank's run ---
# Times (`..._at`) are time.monotonic's seconds; None where something has not happened.

# A smaller share of a core is no progress: heartbeats and idle threads use some.
BUSY = 0.05
_MOST_SAMPLES = 512
# Ranks that come to barriers of all of them are at most one barrier apart.
_MOST_BARRIERS = 64
# Reports of programs that are kept; and after how many seconds the next one is late.
_MOST_REPORTS, _REPORTED_S = 6, 2.0


class Sample(Value):
    """A sample of a rank's usage at time `at`: total processor seconds, and memory in KiB."""

    at: float
    cpu_s: float
    rss_kib: int


class Import(Value):
    """An import by the import server (--preload), and its start in time.monotonic's seconds."""

    module: str
    since: float


class RankProcess(Changing):
    """The rank's own process. Times are in time.monotonic's seconds.

    Attributes:
        awaits: the import that must end before the rank can be forked; None if there is none.
        status: exit status, or minus the number of a signal; None while the process runs.
        signals: numbers of the signals that the launcher sent to end the process.
        forwarded: numbers of the user's signals that the launcher has passed on.
        killer: cause of a kill, in words: the out-of-memory killer, or a limit of the kernel;
            "" for none of these, None if unknown.
        lost: True if the process was lost with its host, so that its end is unknown.
        has_failed: True if its hook has reported how its program fails; its Python may still end.
        hooked: True if the hook ran in its Python; known only after the exit.
        stack: dump of its threads when it crashed; "" if it has not crashed.
        tests: the tests that pytest runs in it; None if there are none.
        failed_test: its first failed test, and the time of the failure; None if none has failed.

    """

    awaits: Import | None = None
    pid: int | None = None
    started_at: float | None = None
    first_output_at: float | None = None
    last_output_at: float | None = None
    ended_at: float | None = None
    status: int | None = None
    signals: tuple[int, ...] = ()
    forwarded: tuple[int, ...] = ()
    killer: str | None = None
    lost: bool = False
    has_failed: bool = False
    hooked: bool = False
    stack: str = ""
    tests: CollectedTests | None = None
    failed_test: tuple[FailedTest, float] | None = None


class Membership(Changing):
    """The rank's part in the JAX job. Times are in time.monotonic's seconds.

    Several programs of a rank may take part, one after another. The fields describe the
    latest, except `turn`, `second_process` and `called_below`, which cover all programs.

    Attributes:
        imported: report of the imported jax, with its version; None before the import.
        call: the latest call of initialize(); None before.
        joining_at: time of that call; None before.
        joined_at: time at which the call returned; None before.
        leaving_at: end of the program, after which JAX may still hold up the process; or None.
        left: True if the program has left the JAX job; its process may go on.
        turn: number of the rank's earlier programs that took part.
        second_process: line at which a second process of the rank called initialize(); None if
            there was no such call.
        backend: the backend that the program uses or is about to start; None before.
        called_below: time of each call of initialize() by a child process of the rank.
        refused: report of the exception of `call`; None if it raised none.
        goes_on: True if the program has compiled since that exception.

    """

    imported: ImportedJax | None = None
    call: Joining | None = None
    joining_at: float | None = None
    joined_at: float | None = None
    leaving_at: float | None = None
    left: bool = False
    turn: int = 0
    second_process: str | None = None
    backend: Backend | None = None
    called_below: dict[CalledBelow, float] = field(default_factory=dict)
    refused: NotJoined | None = None
    goes_on: bool = False

    @property
    def has_called(self) -> bool:
        """True if the program has called initialize(), and the call raised no exception."""
        return self.joining_at is not None and self.refused is None

    @property
    def is_joining(self) -> bool:
        """True if the rank has called initialize() and not joined; also after a failed call."""
        return self.joining_at is not None and self.joined_at is None


class Compilations(Changing):
    """The compilations of a rank. Times are in time.monotonic's seconds.

    Attributes:
        under_way: number of compilations that are running.
        latest: the compilation that began last; None before the first.
        platform: the first platform compiled for that is not "cpu", else "cpu"; "" if none.
        ran: for each user line, the program across processes that had its first run there last.
        awaits: the rank that compiles a program for this rank; -1 if there is none.
        compiled, loaded: number of programs that the rank compiled itself, and that it loaded.
        compiled_s, saved_s: seconds spent on compiled programs, and saved by loaded programs.

    """

    under_way: int = 0
    latest: Compiling | None = None
    platform: str = ""
    ran: dict[str, RanProgram] = field(default_factory=dict)
    awaits: int = -1
    compiled: int = 0
    loaded: int = 0
    compiled_s: float = 0.0
    saved_s: float = 0.0

    @property
    def on_accelerator(self) -> bool:
        """True if the rank's programs run on accelerators, where a wait may use a processor."""
        return self.platform not in ("", "cpu")

    def begin(self, compiling: Compiling) -> None:
        """Record that a compilation begins."""
        self.under_way += 1
        self.latest = compiling
        if not self.on_accelerator:  # a rank on an accelerator may compile for the CPU as well
            self.platform = compiling.platform

    def count_obtained(self, is_loaded: bool, seconds: float) -> None:
        """Count a program that took `seconds` to compile, or whose loading saved `seconds`."""
        if is_loaded:
            self.loaded += 1
            self.saved_s += seconds
        else:
            self.compiled += 1
            self.compiled_s += seconds


class RankResources(Changing):
    """The resources that the rank uses.

    Attributes:
        samples: samples of all the rank's processes, in order of time.
        share: cores used between the last two samples (1.0 for a whole core).
        cpu_s, peak_kib: processor seconds and peak memory of its own process; None until its end.
        gpus: its use of GPUs; without contents if its host has reported none.

    """

    samples: list[Sample] = field(default_factory=list)
    share: float = 0.0
    cpu_s: float | None = None
    peak_kib: int | None = None
    gpus: RankGpus = field(default_factory=RankGpus)

    def add(self, sample: Sample, since: float) -> None:
        """Add a sample of all processes of the rank, whose own process was started at `since`."""
        before = self.samples[-1] if self.samples else Sample(since, 0.0, 0)
        self.share = (sample.cpu_s - before.cpu_s) / max(sample.at - before.at, 1e-3)
        if len(self.samples) >= _MOST_SAMPLES:
            del self.samples[1::2]
        self.samples.append(sample)


class ProgramCount:
    """Count of the programs over several processes that the rank has begun to run."""

    def __init__(self) -> None:
        self._recent: list[tuple[float, int]] = []  # times and counts of reports

    @property
    def total(self) -> int:
        """The number of programs, by the latest report."""
        return self._recent[-1][1] if self._recent else 0

    def record(self, total: int, at: float) -> bool:
        """Record a report; return whether the rank has begun further programs."""
        has_grown = total > self.total
        self._recent = [*self._recent[1 - _MOST_REPORTS :], (at, total)]
        return has_grown

    def compute_rate(self, now: float) -> float | None:
        """Return the number of programs a second in the last reports; None if unknown yet.

        Only news are reported, so that the rate falls while none come.
        """
        if len(self._recent) < 2:
            return None
        (first_at, first), (last_at, last) = self._recent[0], self._recent[-1]
        until = last_at if now < last_at + _REPORTED_S else now
        return round(max(0, last - first) / max(until - first_at, 1e-3), 2)


class DevicesAsked(Value):
    """The number and kind of devices that an option asks for in each rank."""

    option: str
    count: int
    kind: str


class RankShare(Changing):
    """A rank's share of its host, the same after each restart.

    Attributes:
        log_folder: the folder of the rank's log files; None if it has none.
        gpus: GPUs assigned to the rank, as JAX_LOCAL_DEVICE_IDS; "" if it may use all.
        cores: cores that the rank is bound to, such as `0-15,128-143`; "" if it may use all.
        asked: devices that an option asks for; None if no option does.
        shared_gpus: message to print if the rank uses a GPU; "" if each rank has its own.

    """

    log_folder: str | None = None
    gpus: str = ""
    cores: str = ""
    asked: DevicesAsked | None = None
    shared_gpus: str = ""


class ErrorReport(Value):
    """An unhandled exception of a thread or callback, and the time at which it was reported."""

    at: float
    error: UnhandledError


class Verdict(Enum):
    """The judgement on the end of a rank's program; see `journal.verdict`."""

    FAILED = auto()  # it failed by itself
    VICTIM = auto()  # it failed because JAX had lost another rank
    STOPPED = auto()  # it ended because the launcher had told it to
    FINE = auto()


class RankRun(Changing):
    """Facts about one process of a rank, from its start to its end.

    Attributes:
        process_id: number of the rank.
        host: name of the rank's host.
        verdict: verdict on its end; None until it is judged.
        order: 1-based position among the ends and failures as they became known; 0 before.
        after_signal: True if it ended or failed only after the launcher had sent a signal.
        failure: exception or exit that its hook reported; None if there is none.
        failed_at: time at which the failure became known; None if it has not failed.
        unhandled_errors: unhandled exceptions of its threads and callbacks.
        handling: the latest program over several processes that it has launched while it handled an
            exception; None if there was none.
        barrier: the latest barrier of all ranks that it has come to; None if its wait has failed.
        barriers: how often it has come to each of its latest barriers, by name.
        programs: count of the programs over several processes that it has begun.
        late_position: position, in words, when another rank gave up waiting for it; else "".
        stdout, stderr: end of its output; stdout is kept only for a job's record.

    """

    process_id: int
    host: str
    verdict: Verdict | None = None
    order: int = 0
    after_signal: bool = False
    failure: Failed | None = None
    failed_at: float | None = None
    unhandled_errors: list[ErrorReport] = field(default_factory=list)
    handling: Handling | None = None
    barrier: AtBarrier | None = None
    barriers: dict[str, int] = field(default_factory=dict)
    late_position: str = ""
    stdout: str = ""
    stderr: str = ""
    share: RankShare = field(default_factory=RankShare)
    process: RankProcess = field(default_factory=RankProcess)
    membership: Membership = field(default_factory=Membership)
    compilations: Compilations = field(default_factory=Compilations)
    usage: RankResources = field(default_factory=RankResources)
    programs: ProgramCount = field(default_factory=ProgramCount)

    def record_barrier(self, barrier: AtBarrier) -> None:
        """Record that the rank has come to a barrier, or that its wait there has failed."""
        self.barrier = barrier if barrier.name else None
        if barrier.name:
            self.barriers[barrier.name] = self.barriers.pop(barrier.name, 0) + 1
            if len(self.barriers) > _MOST_BARRIERS:
                del self.barriers[next(iter(self.barriers))]

    @property
    def is_gone(self) -> bool:
        """True if the process has ended, or is lost with its host."""
        return self.status is not None or self.process.lost

    @property
    def stage(self) -> Stage:
        """Stage that the rank has reached, as its agent and its hook have reported."""
        member = self.membership
        if self.is_gone:
            return Stage.ENDED
        if member.left:
            return Stage.LEFT
        if member.joining_at is None:
            return Stage.ABSENT if self.process.awaits is None else Stage.IMPORTING
        if member.refused is not None:
            return Stage.ALONE
        if member.is_joining:
            return Stage.JOINING
        return Stage.INSIDE if member.leaving_at is None else Stage.LEAVING

    @property
    def reached(self) -> ReachedStage:
        """The stage of the rank, with its begin."""
        member, stage = self.membership, self.stage
        if stage is Stage.JOINING:
            return ReachedStage(stage, member.joining_at, member.call.where if member.call else "")
        if stage is Stage.LEAVING:
            return ReachedStage(stage, member.leaving_at)
        return ReachedStage(stage, member.joined_at if stage is Stage.INSIDE else None)

    @property
    def has_finished(self) -> bool:
        """True if the rank had joined, and its program has ended without a failure."""
        member = self.membership
        is_over = member.leaving_at is not None or self.is_gone
        return member.joined_at is not None and is_over and not self.failed

    @property
    def never_joined(self) -> bool:
        """True if the rank exited with 0 and never called initialize(), or its call failed."""
        return self.status == 0 and not self.membership.has_called

    @property
    def was_alone(self) -> bool:
        """True if initialize() raised an exception, and the rank runs or exited with 0."""
        return self.membership.refused is not None and (self.status or 0) == 0

    @property
    def vanished(self) -> bool:
        """True if the rank joined and exited with 0 in the middle of its program (os._exit(0))."""
        member = self.membership
        return self.status == 0 and member.joined_at is not None and member.leaving_at is None

    @property
    def status(self) -> int | None:
        """Exit status of the process, or minus the number of a signal; None while it runs."""
        return self.process.status

    @property
    def hidden_failure(self) -> Failed | None:
        """The program's failure if JAX holds up the exit and so hides the status; else None."""
        return self.failure if self.failure is not None and self.failure.joined else None

    @property
    def was_interrupted(self) -> bool:
        """True if the launcher's SIGINT has ended the program, as a KeyboardInterrupt."""
        failure = self.hidden_failure
        interrupted = failure is not None and failure.exception == KeyboardInterrupt.__name__
        return interrupted and self.after_signal and signal.SIGINT in self.process.signals

    @property
    def failed(self) -> bool:
        """True if the rank failed by itself, not by a signal that the launcher sent."""
        if self.hidden_failure is not None:
            return not self.was_interrupted
        status = self.process.status
        return status is not None and status != 0 and -status not in self.process.signals

    @property
    def exit_status(self) -> int:
        """Exit status as a shell reports it; the program's own status if JAX's exit hides it."""
        if (failure := self.hidden_failure) is not None:
            return failure.status
        status = self.process.status
        assert status is not None
        return compute_exit_status(status)

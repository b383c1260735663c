"""Facts about one rank in one run, and how far it has got."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from mcjax_launch.kernel.wire.exit_status import of_wait
from mcjax_launch.kernel.wire.hook_messages import (
    Backend,
    CalledBelow,
    Compiling,
    Failed,
    ImportedJax,
    Joining,
    NotJoined,
    Program,
    UnhandledError,
)
from mcjax_launch.kernel.wire.value import Changing, Value, field

if TYPE_CHECKING:
    from mcjax_launch.runs.spmd import RanProgram

# --- stages of a job ---
# `diagnosis.snapshots` adds a rank's stack to its stage.


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
    """The stage of a rank, and since when.

    Args:
        stage: how far the rank has got.
        since: when it got there, in time.monotonic's seconds; None if that has no meaning.
        where: the user's line that called initialize(), while the rank is in it.

    """

    stage: Stage
    since: float | None = None
    where: str = ""

    @property
    def is_through(self) -> bool:
        """True if the rank has left initialize(), or has ended: no rank waits for it there."""
        return self.stage not in (Stage.IMPORTING, Stage.ABSENT, Stage.JOINING)

    @property
    def waits_for_others(self) -> bool:
        """True if the rank waits for other ranks: in initialize(), or in JAX's exit barrier."""
        return self.stage in (Stage.JOINING, Stage.LEAVING)

    def __str__(self) -> str:
        """Return in words where the rank waits for the others."""
        if self.stage is Stage.JOINING:
            return "in initialize()" + (f" at {self.where}" if self.where else "")
        return "in JAX's exit barrier"


# --- one rank's run ---
# Times (`..._at`) are time.monotonic's seconds; None where something has not happened.

# A smaller share of a core is no progress: heartbeats and idle threads use some.
BUSY = 0.05
# The same for the main thread on accelerators, where other threads may spin while the job hangs.
_MAIN_BUSY = 1e-4
_MOST_SAMPLES = 512


class Sample(Value):
    """The usage of a rank's processes: seconds of processor time so far, and memory in KiB."""

    at: float
    cpu_s: float
    rss_kib: int


class Import(Value):
    """An import in another process that a rank waits for (--preload)."""

    module: str
    since: float


class RankProcess(Changing):
    """The rank's own process.

    Attributes:
        awaits: the import that has to end before the rank can be forked; None if there is none.
        status: exit status; below 0: minus a signal. None while the process lives.
        signals: the signals that the launcher sent to end the process, before it ended.
        killer: what ended it, in words: the out-of-memory killer, one of the kernel's limits, or a
            rehearsal; "" for none of these, None if unknown.
        rehearsed: the process, or its host, was killed on purpose.
        lost: the process was lost with its host, so nothing more is known of it.
        restarts: the process has failed, and the rank is about to be restarted.
        hooked: the hook was in its Python, as reported at its end.
        stack: of its main thread when it crashed; "" if it has not crashed.

    """

    awaits: Import | None = None
    pid: int | None = None
    started_at: float | None = None
    first_output_at: float | None = None
    last_output_at: float | None = None
    ended_at: float | None = None
    status: int | None = None
    signals: tuple[int, ...] = ()
    killer: str | None = None
    rehearsed: bool = False
    lost: bool = False
    restarts: bool = False
    hooked: bool = False
    stack: str = ""


class Membership(Changing):
    """The rank's part in the JAX job.

    Several programs of a rank may take part, one after another. All fields but `turn` describe the
    latest.

    Attributes:
        imported: the versions of jax that a program has imported; None before.
        call: the call of initialize(); None before it.
        leaving_at: when its program ended; JAX may still hold up the process.
        left: the program has left the job, and may go on.
        turn: how many programs of the rank took part before this one.
        second_process: the line at which a second process of the rank called initialize(); None if
            none did.
        backend: the backend that it uses or is about to start; None before.
        called_below: calls of initialize() by processes that the rank started, with their times.
        refused: the exception of its latest call of initialize(); None if that raised none.
        refused_at: when that exception was raised.

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
    refused_at: float | None = None

    @property
    def has_called(self) -> bool:
        """True if the program has called initialize(), and the call raised no exception."""
        return self.joining_at is not None and self.refused is None

    @property
    def is_joining(self) -> bool:
        """True if the rank is in initialize(), as far as is known."""
        return self.joining_at is not None and self.joined_at is None


class Compilations(Changing):
    """The compilations of a rank.

    Attributes:
        under_way: how many compilations are running.
        latest: the compilation that began last.
        platform: of its programs: the first that is not "cpu", if there is one.
        ran: by the user's line, the program that spans processes which the rank first ran there
            most recently.
        began_at, ended_at: of the latest period of compiling; compilations may overlap.
        program: the program being compiled, if it spans processes and programs are compared.
        busy_at: when a compilation last began or ended, or the rank was last seen to use a
            processor.
        seen_at: when the rank's usage was last reported.
        awaits: the rank that compiles a program for this one; -1 while it does not wait.
        compiled, loaded: how many programs it has compiled itself, and loaded from other ranks.
        compiled_s, saved_s: seconds that the compiled ones took, and the loaded ones would have
            taken.

    """

    under_way: int = 0
    latest: Compiling | None = None
    platform: str = ""
    ran: dict[str, RanProgram] = field(default_factory=dict)
    began_at: float = 0.0
    ended_at: float = 0.0
    program: Program | None = None
    busy_at: float = 0.0
    seen_at: float = 0.0
    awaits: int = -1
    compiled: int = 0
    loaded: int = 0
    compiled_s: float = 0.0
    saved_s: float = 0.0

    @property
    def on_accelerator(self) -> bool:
        """True if its programs run on anything but the CPU, where waits may spin."""
        return self.platform not in ("", "cpu")

    def begin(self, compiling: Compiling, at: float) -> None:
        """Record that a compilation begins."""
        if self.under_way == 0:
            self.began_at = at
        self.under_way += 1
        self.latest, self.busy_at = compiling, at
        if not self.on_accelerator:  # a rank on an accelerator may compile for the CPU as well
            self.platform = compiling.platform

    def end(self, at: float) -> None:
        """Record that a compilation has ended."""
        self.under_way -= 1
        self.ended_at = self.busy_at = at

    def count_obtained(self, is_loaded: bool, seconds: float) -> None:
        """Count a program that took `seconds` to compile, or whose loading saved them."""
        if is_loaded:
            self.loaded += 1
            self.saved_s += seconds
        else:
            self.compiled += 1
            self.compiled_s += seconds

    def forget_program(self, fingerprint: str) -> None:
        """Forget a program that is no longer being compiled."""
        if self.program is not None and self.program.fingerprint == fingerprint:
            self.program = None

    def record_usage(self, share: float, at: float) -> None:
        """Record the share of a core that the rank has used until now."""
        self.seen_at = at
        if share > BUSY:
            self.busy_at = at

    def idle_s(self, since: float = 0.0) -> float:
        """Return for how many seconds compilations have used no processor.

        Time before `since` does not count.
        """
        return self.seen_at - max(self.busy_at, since) if self.under_way > 0 else 0.0


class MainThread(Changing):
    """The state of the rank's main thread: whether it runs Python, and so makes progress.

    It is used on accelerators, where processor time shows nothing.

    Attributes:
        is_asked: the thread has been asked for its position, and answers as soon as it runs Python.
        silent_since: when the question that it has not answered was asked; None after an answer.

    """

    is_asked: bool = False
    silent_since: float | None = None

    def ask(self, at: float) -> bool:
        """Record a question; return False if the thread has yet to answer an earlier one."""
        self.is_asked, is_new = True, self.silent_since is None
        if is_new:
            self.silent_since = at
        return is_new


class RankResources(Changing):
    """The resources that the rank uses.

    Attributes:
        samples: of all its processes, over time.
        share: of a core, used between the last two samples.
        cpu_s, peak_kib: of its own process in total, once it has ended.
        main_s, main_waits: of the main threads of its Python processes, at the last sample.

    """

    samples: list[Sample] = field(default_factory=list)
    share: float = 0.0
    cpu_s: float | None = None
    peak_kib: int | None = None
    main_s: float = 0.0
    main_waits: int = 0

    def add(
        self, sample: Sample, main_s: float, main_waits: int, since: float, spins: bool
    ) -> bool:
        """Add a sample; return whether the rank has made progress since the last sample.

        Args:
            sample: of all processes of the rank.
            main_s: seconds of processor time of the main threads of its Python processes.
            main_waits: how often these threads have had to wait.
            since: when the rank's process started.
            spins: its programs run on accelerators.

        """
        before = self.samples[-1] if self.samples else Sample(since, 0.0, 0)
        seconds = max(sample.at - before.at, 1e-3)
        self.share = (sample.cpu_s - before.cpu_s) / seconds
        main_used_s = main_s - self.main_s
        self.main_s, self.main_waits = main_s, main_waits
        if len(self.samples) >= _MOST_SAMPLES:
            del self.samples[1::2]
        self.samples.append(sample)
        return main_used_s / seconds > _MAIN_BUSY if spins else self.share > BUSY


class DevicesAsked(Value):
    """The number and kind of devices that an option asks for in each rank."""

    option: str
    count: int
    kind: str


class RankShare(Changing):
    """A rank's share of its host, the same after each restart.

    Attributes:
        log_folder: the folder of its log files; None if it has none.
        gpus: the GPUs that it is to use, as JAX_LOCAL_DEVICE_IDS; "" if it may use all.
        cores: the cores that it is bound to, as `0-15,128-143`; "" if it may use all.
        asked: the devices that an option has asked for; None if none has.
        uneven_gpus: the message to print if it uses a GPU of a host that cannot share its GPUs
            equally.

    """

    log_folder: str | None = None
    gpus: str = ""
    cores: str = ""
    asked: DevicesAsked | None = None
    uneven_gpus: str = ""


class ErrorReport(Value):
    """An exception that has ended a thread, or was raised in a callback; see `UnhandledError`."""

    at: float
    error: UnhandledError


class Verdict(Enum):
    """The judgement on the end of a rank's program; see `diagnosis.verdict`."""

    FAILED = auto()  # it failed by itself
    VICTIM = auto()  # it failed because JAX had lost another rank
    STOPPED = auto()  # it ended because the launcher had told it to
    FINE = auto()


class RankRun(Changing):
    """Facts about one process of a rank, from its start to its end.

    Attributes:
        verdict: how it ended, once that is known.
        order: position in the order in which ends and failures became known, from 1; 0 before.
        after_signal: it ended, or failed, only after it had been sent a signal to end it.
        failure: the exception or exit that its hook reported, if any.
        failed_at: when that, or an end with a failure, became known.
        unhandled_errors: the exceptions of its threads and callbacks.
        incomparable: why its programs cannot be compared; "" as a rule.
        late_position: its position when another rank gave up waiting for it, in words; else "".
        position_before_call: its position while the others waited for it in initialize(), in words.
        stdout, stderr: the last of its output; stdout only for a job's record.
        past: the rank's earlier processes in this attempt, see `--on-rank-failure`.

    """

    process_id: int
    host: str
    verdict: Verdict | None = None
    order: int = 0
    after_signal: bool = False
    failure: Failed | None = None
    failed_at: float | None = None
    unhandled_errors: list[ErrorReport] = field(default_factory=list)
    incomparable: str = ""
    late_position: str = ""
    position_before_call: str = ""
    stdout: str = ""
    stderr: str = ""
    share: RankShare = field(default_factory=RankShare)
    process: RankProcess = field(default_factory=RankProcess)
    membership: Membership = field(default_factory=Membership)
    compilations: Compilations = field(default_factory=Compilations)
    usage: RankResources = field(default_factory=RankResources)
    main_thread: MainThread = field(default_factory=MainThread)
    past: tuple[RankRun, ...] = ()

    def make_successor(self) -> RankRun:
        """Return a new RankRun for the same rank, which is about to be restarted."""
        return RankRun(self.process_id, self.host, share=self.share, past=(*self.past, self))

    @property
    def all_runs(self) -> tuple[RankRun, ...]:
        """The RankRuns of all the rank's processes in this attempt, this one last."""
        return (*self.past, self)

    @property
    def is_gone(self) -> bool:
        """True if the process has ended, or is lost with its host."""
        return self.status is not None or self.process.lost

    @property
    def answers_for_progress(self) -> bool:
        """True if answers of the main thread, not processor time, count as progress.

        That is so on accelerators, where waits may spin.
        """
        return self.main_thread.is_asked and self.compilations.on_accelerator

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
        """The stage of the rank, and since when."""
        member, stage = self.membership, self.stage
        if stage is Stage.JOINING:
            return ReachedStage(stage, member.joining_at, member.call.where if member.call else "")
        if stage is Stage.LEAVING:
            return ReachedStage(stage, member.leaving_at)
        return ReachedStage(stage, member.joined_at if stage is Stage.INSIDE else None)

    @property
    def never_joined(self) -> bool:
        """True if the rank exited with 0 and never called initialize(), or its call failed."""
        return self.status == 0 and not self.membership.has_called

    @property
    def was_alone(self) -> bool:
        """True if the program went on, or may go on, after initialize() had raised an exception."""
        return self.membership.refused is not None and (self.status or 0) == 0

    @property
    def vanished(self) -> bool:
        """True if the rank exited with 0 although its program had joined and was not at its end."""
        member = self.membership
        return self.status == 0 and member.joined_at is not None and member.leaving_at is None

    @property
    def status(self) -> int | None:
        """Exit status of the process; below 0: minus a signal. None while it lives."""
        return self.process.status

    @property
    def hidden_failure(self) -> Failed | None:
        """The program's failure, if JAX held up the exit, so that the real status is lost."""
        return self.failure if self.failure is not None and self.failure.joined else None

    @property
    def failed(self) -> bool:
        """True if the rank failed by itself, not by a signal that the launcher sent."""
        if self.hidden_failure is not None:
            return True
        status = self.process.status
        return status is not None and status != 0 and -status not in self.process.signals

    @property
    def exit_status(self) -> int:
        """Status that a shell would report; the program's own if JAX's exit hid that."""
        if (failure := self.hidden_failure) is not None:
            return failure.status
        status = self.process.status
        assert status is not None
        return of_wait(status)

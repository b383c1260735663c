"""What is known of one rank's run, and where it is in the course of the job."""

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

# --- places in a job ---
# What its stack adds to that is in `diagnosis.sightings`.


class Stage(Enum):
    """How far a rank has got."""

    IMPORTING = auto()  # it cannot be forked before another process has imported (--preload)
    ABSENT = auto()  # it has not called initialize()
    JOINING = auto()  # in initialize()
    ALONE = auto()  # initialize() has raised an exception, and it goes on
    INSIDE = auto()  # in the middle of its program
    LEAVING = auto()  # in JAX's exit barrier
    LEFT = auto()  # it takes no part any more, and still runs
    ENDED = auto()


class Place(Value):
    """Where a rank is.

    Args:
        stage: how far it has got.
        since: when it got there, in time.monotonic's seconds; None where that says nothing.
        where: the user's line that called initialize(), while the rank is in it.

    """

    stage: Stage
    since: float | None = None
    where: str = ""

    @property
    def is_through(self) -> bool:
        """Whether nobody waits any longer for it to come through initialize()."""
        return self.stage not in (Stage.IMPORTING, Stage.ABSENT, Stage.JOINING)

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for the others whatever its program does."""
        return self.stage in (Stage.JOINING, Stage.LEAVING)

    def __str__(self) -> str:
        """Where it waits for the others, in words."""
        if self.stage is Stage.JOINING:
            return "in initialize()" + (f" at {self.where}" if self.where else "")
        return "in JAX's exit barrier"


# --- one rank's run ---
# Times (`..._at`) are time.monotonic's seconds; None where something has not happened.

# Using less of a core than this is no progress: heartbeats and idle threads need some.
BUSY = 0.05
# On accelerators other threads may spin while all hangs; the main thread does a little each step.
_MAIN_BUSY = 1e-4
_MOST_SAMPLES = 512


class Sample(Value):
    """What the processes of a rank use: seconds of processor time so far, and memory in KiB."""

    at: float
    cpu_s: float
    rss_kib: int


class Import(Value):
    """An import that a rank waits for, in another process (--preload)."""

    module: str
    since: float


class RankProcess(Changing):
    """The rank's own process.

    Attributes:
        awaits: what is imported before it can be forked; None when that is over.
        status: exit status; below 0: minus a signal. None while it lives.
        signals: those it was sent to end it, before it ended.
        killer: what ended it, in words: the out-of-memory killer, one of the kernel's limits, or a
            rehearsal; "" for none of these, None: not known.
        rehearsed: it, or its host, was killed on purpose.
        lost: with its host, so that nothing more is known of it.
        restarts: it has failed, and the rank is about to be started again.
        hooked: the hook was in its Python, as became known at its end.
        stack: of its main thread, as it crashed; "" if it has not.

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

    Several of its programs may take part, one after another; all but `turn` is of the latest.

    Attributes:
        imported: a program has imported jax.distributed, of these versions; None before.
        call: the call of initialize(); None before it.
        leaving_at: its program is over; JAX may hold up the process.
        left: its program has left the job, and may go on.
        turn: how many programs took part before this one.
        second_process: the line at which a second process of it called initialize(), if one did.
        backend: what it uses, or is about to; None before it starts one.
        called_below: calls of initialize() by processes that it started, and when each came.
        refused: the exception of its latest call of initialize(); None if that raised none.
        refused_at: when it was raised.

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
        """True if its program has called initialize(), and that has not raised an exception."""
        return self.joining_at is not None and self.refused is None

    @property
    def is_joining(self) -> bool:
        """Whether it was last in initialize(), as far as is known."""
        return self.joining_at is not None and self.joined_at is None


class Compilations(Changing):
    """What the rank compiles.

    Attributes:
        under_way: how many.
        latest: the one that began last.
        platform: of its programs: the first that is not "cpu", if there is one.
        ran: the latest program that spans processes which it first ran at each of the user's lines.
        began_at, ended_at: of the latest time that it spent on them; see `hook_events.take`.
        program: that is compiled, if it spans processes and programs are compared.
        busy_at: when one last began or ended, or the rank was last seen to use a processor.
        seen_at: when it was last known what the rank uses.
        awaits: the rank that compiles a program for this one; -1 while it does not wait.
        compiled, loaded: how many programs it has compiled itself, and loaded from other ranks.
        compiled_s, saved_s: how long the former took, and would have taken.

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
        """Whether its programs run on anything but the CPU, where waits may spin."""
        return self.platform not in ("", "cpu")

    def begin(self, compiling: Compiling, at: float) -> None:
        """A compilation begins."""
        if self.under_way == 0:
            self.began_at = at
        self.under_way += 1
        self.latest, self.busy_at = compiling, at
        if not self.on_accelerator:  # one that uses an accelerator may use the CPU as well
            self.platform = compiling.platform

    def end(self, at: float) -> None:
        """A compilation ends."""
        self.under_way -= 1
        self.ended_at = self.busy_at = at

    def obtained(self, is_loaded: bool, seconds: float) -> None:
        """Count a program that was compiled in so many seconds, or loaded, which saved them."""
        if is_loaded:
            self.loaded += 1
            self.saved_s += seconds
        else:
            self.compiled += 1
            self.compiled_s += seconds

    def over(self, fingerprint: str) -> None:
        """Forget a program that is not compiled any more."""
        if self.program is not None and self.program.fingerprint == fingerprint:
            self.program = None

    def used(self, share: float, at: float) -> None:
        """The rank has used so much of a core until now."""
        self.seen_at = at
        if share > BUSY:
            self.busy_at = at

    def idle_s(self, since: float = 0.0) -> float:
        """For how long one has been under way without a processor; counted from `since` at most."""
        return self.seen_at - max(self.busy_at, since) if self.under_way > 0 else 0.0


class MainThread(Changing):
    """Whether the rank's main thread runs Python: how a rank on an accelerator is judged.

    Attributes:
        is_asked: the thread has been asked where it is, and answers as soon as it runs Python.
        silent_since: when the question was asked that it has not answered; None after an answer.

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
    """What the rank uses.

    Attributes:
        samples: of all its processes, over time.
        share: of a core, that it used between the last two of them.
        cpu_s, peak_kib: of its own process in all, once it has ended.
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
        """Keep a sample; whether the rank has made progress since the last one.

        Args:
            sample: of all processes of the rank.
            main_s: seconds of processor time of the main threads of its Python processes.
            main_waits: how often these have had to wait.
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
    """The devices that an option has asked for: how many of this kind each rank is to have."""

    option: str
    count: int
    kind: str


class RankShare(Changing):
    """What a rank has of its host, in each of its lives.

    Attributes:
        log_folder: where its log files are, if it has any.
        gpus: those that it is to use, as JAX_LOCAL_DEVICE_IDS; "" where it may use all.
        cores: those that it is bound to, as `0-15,128-143`; "" where it may use all.
        asked: the devices that an option has asked for; None: none has.
        uneven_gpus: what to say if it uses one, where its host's cannot be shared equally.

    """

    log_folder: str | None = None
    gpus: str = ""
    cores: str = ""
    asked: DevicesAsked | None = None
    uneven_gpus: str = ""


class LostError(Value):
    """An exception that has ended a thread, or was raised in a callback; see `UnhandledError`."""

    at: float
    error: UnhandledError


class Verdict(Enum):
    """What the end of a rank's program was; see `diagnosis.verdict`."""

    FAILED = auto()  # by itself
    VICTIM = auto()  # it failed because JAX had lost another rank
    STOPPED = auto()  # it ended because the launcher had told it to
    FINE = auto()


class RankRun(Changing):
    """What is known of one rank's run: of its life, where it has had several.

    A life is one process of the rank's and all that it does, from its start to its end.

    Attributes:
        verdict: what its end was, once that is known.
        order: its place in the order in which ends and failures became known; 0 before.
        after_signal: it ended, or failed, only after it had been sent a signal to end it.
        failure: what its hook said of an exception or exit, if it did.
        failed_at: when that, or its end with a failure, became known.
        lost: the exceptions of its threads and callbacks.
        incomparable: why its programs cannot be compared; "" as a rule.
        stood: where it was when another one gave up waiting for it, in words; "" if none did.
        before_call: where it was while the others waited for it in initialize(), in words.
        stdout, stderr: the last of its output; stdout only for a job's record.
        past: its earlier lives, see `--on-rank-failure`.

    """

    process_id: int
    host: str
    verdict: Verdict | None = None
    order: int = 0
    after_signal: bool = False
    failure: Failed | None = None
    failed_at: float | None = None
    lost: list[LostError] = field(default_factory=list)
    incomparable: str = ""
    stood: str = ""
    before_call: str = ""
    stdout: str = ""
    stderr: str = ""
    share: RankShare = field(default_factory=RankShare)
    process: RankProcess = field(default_factory=RankProcess)
    membership: Membership = field(default_factory=Membership)
    compilations: Compilations = field(default_factory=Compilations)
    usage: RankResources = field(default_factory=RankResources)
    main_thread: MainThread = field(default_factory=MainThread)
    past: tuple[RankRun, ...] = ()

    def next_life(self) -> RankRun:
        """The same rank, about to be started again in its place."""
        return RankRun(self.process_id, self.host, share=self.share, past=(*self.past, self))

    @property
    def lives(self) -> tuple[RankRun, ...]:
        """All of its lives, this one last."""
        return (*self.past, self)

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, or is lost with its host."""
        return self.status is not None or self.process.lost

    @property
    def answers_for_progress(self) -> bool:
        """True if the rank moves when its main thread answers, and not when it uses processors.

        On accelerators waits spin.
        """
        return self.main_thread.is_asked and self.compilations.on_accelerator

    @property
    def stage(self) -> Stage:
        """How far it has got, as its agent and its hook have reported."""
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
    def place(self) -> Place:
        """Where it is: how far it has got, and since when."""
        member, stage = self.membership, self.stage
        if stage is Stage.JOINING:
            return Place(stage, member.joining_at, member.call.where if member.call else "")
        if stage is Stage.LEAVING:
            return Place(stage, member.leaving_at)
        return Place(stage, member.joined_at) if stage is Stage.INSIDE else Place(stage)

    @property
    def never_came(self) -> bool:
        """Whether it exited with 0 without having called initialize(), or after that failed."""
        return self.status == 0 and not self.membership.has_called

    @property
    def was_alone(self) -> bool:
        """True if its program went on, or may go on, after initialize() had raised an exception."""
        return self.membership.refused is not None and (self.status or 0) == 0

    @property
    def vanished(self) -> bool:
        """Whether it exited with 0 although its program had joined, and had not come to its end."""
        member = self.membership
        return self.status == 0 and member.joined_at is not None and member.leaving_at is None

    @property
    def status(self) -> int | None:
        """Exit status of its process; below 0: minus a signal. None while it lives."""
        return self.process.status

    @property
    def hidden_failure(self) -> Failed | None:
        """Its program's failure, where JAX held up the exit, so that the real status is lost."""
        return self.failure if self.failure is not None and self.failure.joined else None

    @property
    def failed(self) -> bool:
        """Whether it failed by itself: not by a signal that it was sent."""
        if self.hidden_failure is not None:
            return True
        status = self.process.status
        return status is not None and status != 0 and -status not in self.process.signals

    @property
    def exit_status(self) -> int:
        """The status that a shell would report; the program's own where JAX's exit hid that."""
        if (failure := self.hidden_failure) is not None:
            return failure.status
        status = self.process.status
        assert status is not None
        return of_wait(status)

"""What happened in one run of a job, in the order in which it became known; pure.

Times (`at`, `..._at`) are seconds since the run began, by the launcher's clock: clocks of hosts
are never compared.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mcjax_launch.protocol.hook_messages import (
    Blind,
    Compiled,
    Compiling,
    Failed,
    ImportedJax,
    Joined,
    Joining,
    Leaving,
    Left,
)
from mcjax_launch.protocol.hook_messages import Program as ProgramMessage
from mcjax_launch.protocol.hook_messages import Rerun as RerunMessage
from mcjax_launch.protocol.messages import Exited, FromHook, Usage
from mcjax_launch.run.spmd import Comparison, Program, Rerun

# Less of a processor than this is no progress: heartbeats and idle threads need some.
_BUSY = 0.05
# On accelerators other threads may spin while all hangs; the main thread does a little each step.
_MAIN_BUSY = 1e-4
_MOST_SAMPLES = 512


@dataclass(frozen=True)
class Sample:
    """What the processes of a rank use: seconds of processor time so far, and memory in KiB."""

    at: float
    cpu_s: float
    rss_kib: int


@dataclass
class RankRun:
    """What is known of one rank's run.

    Attributes:
        order: its place in the order in which ends and failures became known.
        status: exit status; below 0: minus a signal. None while its process lives.
        sent: signals it was sent to end it, before it ended.
        told_to_end: it ended, or failed, only after it had been sent one.
        lost: with its host, so that nothing more is known of it.
        coordinates: what it called initialize() with; None as long as it has not.
        turn: how many programs it had run before that were part of the job: one shell script may
            run some in turn. Times are those of the latest.
        beside: the line at which a second process of it called initialize(), if one did.
        left: its program has left the job, and may go on.
        platform: of its compiled programs: the first that is not "cpu", if there is one.
        compilations: how many it has under way.
        compiled: the program that it began to compile last.
        failure: what the hook said of an exception or exit, if it did.
        blind: why its programs cannot be compared; empty as a rule.
        killer: what the out-of-memory killer did to it, in words: empty for nothing, None where
            that is not known.
        stdout, stderr: the last of what it wrote there; stdout only for a job's record.
        cpu_s, peak_kib: what its process used in all, once it has ended.

    """

    process_id: int
    host: str
    order: int = 0
    status: int | None = None
    sent: Sequence[int] = ()
    failure: Failed | None = None
    told_to_end: bool = False
    lost: bool = False
    stdout: str = ""
    stderr: str = ""
    pid: int | None = None
    coordinates: Joining | None = None
    turn: int = 0
    beside: str | None = None
    left: bool = False
    imported_jax: bool = False
    platform: str = ""
    compilations: int = 0
    compiled: Compiling | None = None
    blind: str = ""
    killer: str | None = None
    cpu_s: float | None = None
    peak_kib: int | None = None
    started_at: float | None = None
    joining_at: float | None = None
    joined_at: float | None = None
    first_output_at: float | None = None
    leaving_at: float | None = None  # its program is over; JAX may hold up the process
    failed_at: float | None = None  # so was told, before its end or with it
    ended_at: float | None = None
    samples: list[Sample] = field(default_factory=list)

    _main_s: float = 0.0

    @property
    def is_joining(self) -> bool:
        """Whether it is in initialize()."""
        return self.coordinates is not None and self.joined_at is None

    @property
    def hidden_failure(self) -> bool:
        """Whether its program failed although JAX held up its end, so that its status is lost."""
        return self.failure is not None and self.failure.joined

    @property
    def failed(self) -> bool:
        """Whether it failed by itself: not by a signal that it was sent."""
        if self.hidden_failure:
            return True
        return self.status is not None and self.status != 0 and -self.status not in self.sent

    @property
    def exit_status(self) -> int:
        """What a shell would say of it; the program's own where JAX's exit hid that."""
        if self.failure is not None and self.hidden_failure:
            return self.failure.status
        assert self.status is not None
        return self.status if self.status >= 0 else 128 - self.status

    def sampled(self, at: float, cpu_s: float, rss_kib: int, main_s: float) -> bool:
        """Its processes have been looked at; whether they have got on since the last time.

        Args:
            main_s: seconds of processor time of the main threads of its Python processes.

        """
        before = self.samples[-1] if self.samples else Sample(self.started_at or 0.0, 0.0, 0)
        used, spun = cpu_s - before.cpu_s, main_s - self._main_s
        self._main_s = main_s
        if len(self.samples) >= _MOST_SAMPLES:
            del self.samples[1::2]
        self.samples.append(Sample(at, cpu_s, rss_kib))
        seconds = max(at - before.at, 1e-3)
        if self.platform in ("", "cpu"):
            return used / seconds > _BUSY
        return spun / seconds > _MAIN_BUSY


@dataclass(frozen=True)
class Stop:
    """A reason to end the job other than a rank's failure.

    Args:
        words: what happened, in words.
        status: the exit status it leads to.
        details: further lines.
        final: it is no use, or nobody's wish, to start the job again.
        picture: how the ranks stand is to be shown first.

    """

    words: str
    status: int
    details: tuple[str, ...] = ()
    final: bool = True
    picture: bool = False


@dataclass
class History:
    """All that happened in a run.

    Attributes:
        stop_at: when the reason to end it came up, if there was one.
        active_at: when a rank last printed, compiled, computed or came and went.
        looked_at: when agents last told what ranks use.

    """

    ranks: dict[int, RankRun] = field(default_factory=dict)
    stop: Stop | None = None
    stop_order: int = 0
    stop_at: float | None = None
    hosts: int = 1
    num_processes: int = 0  # of the whole job
    stacks: tuple[str, ...] = ()  # where the ranks stood when a limit was reached
    job_id: str = ""
    coordinator: str = ""
    unkillable: list[str] = field(default_factory=list)
    log_dir: str | None = None
    active_at: float = 0.0
    looked_at: float = 0.0
    joins: int = 0  # how often ranks have called initialize()

    _comparisons: dict[int, Comparison] = field(default_factory=dict)  # of each turn
    _events: int = 0
    _processes: dict[int, int] = field(default_factory=dict)  # JAX's process -> rank

    def planned(
        self, job_id: str, coordinator: str, places: Mapping[int, str], log_dir: str | None
    ) -> None:
        """Each rank has a host: they are about to be started."""
        self.job_id, self.coordinator, self.log_dir = job_id, coordinator, log_dir
        self.ranks = {rank: RankRun(rank, host) for rank, host in places.items()}

    def started(self, rank: int, pid: int, at: float) -> None:
        """A rank's process runs."""
        run = self.ranks[rank]
        run.pid, run.started_at = pid, at
        self.active_at = at

    def printed(self, rank: int, at: float) -> None:
        """A rank has written something."""
        run = self.ranks[rank]
        if run.first_output_at is None:
            run.first_output_at = at
        self.active_at = at

    def used(self, usage: Usage, at: float) -> None:
        """Ranks of a host have been looked at: what each uses, see RankRun.sampled."""
        self.looked_at = at
        for one in usage.ranks:
            if self.ranks[one.rank].sampled(at, one.cpu_s, one.rss_kib, one.main_s):
                self.active_at = at

    def exited(self, exited: Exited, at: float) -> bool:
        """A rank's process is gone; whether that is no good end."""
        run = self.ranks[exited.rank]
        run.status, run.ended_at = exited.status, at
        if not run.hidden_failure:
            run.told_to_end = bool(exited.sent)
        run.sent = exited.sent
        run.cpu_s, run.peak_kib = exited.cpu_s, exited.peak_kib
        run.killer = exited.killer
        run.compilations = 0
        run.order = run.order or self._next()
        self.active_at = at
        if run.failed and run.failed_at is None:
            run.failed_at = at
        if run.status == 0 and run.joined_at is not None:
            self._program_over(run)
        return run.status != 0

    def hooked(self, said: FromHook, at: float) -> bool:
        """A rank's hook has said something; whether it is that its program has failed."""
        run = self.ranks[said.rank]
        self.active_at = at
        match said.message:
            case Joining() as joining:
                self._joins(run, said, joining, at)
            case Joined(process_id) if run.joined_at is None:
                run.joined_at = at
                self._processes[process_id] = said.rank
            case Compiling() as compiling:
                run.compilations += 1
                run.compiled = compiling
                if run.platform in ("", "cpu"):  # an accelerator's user may use the CPU as well
                    run.platform = compiling.platform
            case Compiled():
                run.compilations -= 1
            case ProgramMessage() as program if self._compares:
                self._of_turn(run.turn).ran(said.rank, Program.told(program, self._of_process()))
            case RerunMessage() as rerun if self._compares:
                found = Rerun.told(said.rank, rerun, self._of_process())
                self._of_turn(run.turn).reruns.append(found)
            case Blind(reason):
                run.blind = reason
            case Leaving() if run.leaving_at is None:
                run.leaving_at = at
                self._program_over(run)
            case Left():
                run.left = True
            case ImportedJax():
                run.imported_jax = True
            case Failed() as failed if not run.hidden_failure:
                return self._program_failed(run, said, failed, at)
        return False

    def _program_failed(self, run: RankRun, said: FromHook, failed: Failed, at: float) -> bool:
        if failed.joined:
            run.failure, run.failed_at = failed, at
            run.told_to_end = bool(said.sent)
            run.order = self._next()
            return True
        if said.main:  # words for a status that is yet to come
            run.failure = failed
        return False

    def _joins(self, run: RankRun, said: FromHook, joining: Joining, at: float) -> None:
        """A process of a rank calls initialize()."""
        self.joins += 1
        if said.beside:
            run.beside = joining.where
        elif not said.repeated:
            if run.joining_at is not None:
                run.turn += 1
                run.joined_at = run.leaving_at = None
                run.left = False
            run.joining_at, run.coordinates = at, joining

    @property
    def programs(self) -> Comparison:
        """The programs that span processes, as far as ranks have told: of the latest turn."""
        return self._parted or self._of_turn(max(self._comparisons, default=0))

    def _of_turn(self, turn: int) -> Comparison:
        return self._comparisons.setdefault(turn, Comparison())

    @property
    def _parted(self) -> Comparison | None:
        """Those of the first turn in which ranks part."""
        found = (one for one in self._comparisons.values() if one.divergence is not None)
        return next(found, None)

    @property
    def diverged(self) -> bool:
        """Whether the ranks have run different programs."""
        return self._parted is not None

    def _of_process(self) -> dict[int, int]:
        """The rank of each JAX process; of one that has not told yet, its own number."""
        return {**{rank: rank for rank in self.ranks}, **self._processes}

    def _program_over(self, run: RankRun) -> None:
        """A rank runs no more programs; that one has failed says nothing of its program."""
        if self._compares and run.failure is None:
            self._of_turn(run.turn).over(run.process_id)

    @property
    def _compares(self) -> bool:
        """Whether programs are compared: where ranks have parted, to see who is on which side."""
        return self.diverged or not self.ending

    @property
    def ending(self) -> bool:
        """Whether there is a reason for the job to end: from then on ranks may do anything."""
        failed = any(run.failed_at is not None for run in self.ranks.values())
        return failed or self.stop is not None

    @property
    def running(self) -> list[RankRun]:
        """The ranks whose process has not ended."""
        return [run for run in self.ranks.values() if run.status is None]

    def rank_of(self, process: int) -> RankRun | None:
        """The rank that has joined as this JAX process."""
        return self.ranks.get(self._processes.get(process, -1))

    def stopped(self, stop: Stop, at: float) -> None:
        """There is a reason to end the job; the first one counts."""
        if self.stop is None:
            self.stop, self.stop_at = stop, at
            self.stop_order = self._next()

    def amend(self, stop: Stop) -> None:
        """More is known of the reason to end the job, if it still is this one."""
        if self.stop is not None and self.stop.words == stop.words:
            self.stop = stop

    def keep_last(self, tails: Callable[[int], tuple[str, str]]) -> None:
        """The ranks have written all: keep the last of it, of each rank's stdout and stderr."""
        for rank, run in self.ranks.items():
            run.stdout, run.stderr = tails(rank)

    def _next(self) -> int:
        self._events += 1
        return self._events


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A run that is over.

    Args:
        restart: how many times the job had been started before.
        hosts: their names, in order.
        began_at: when it began, in time.monotonic's seconds.
        seconds: how long it took.
        status: the exit status that it led to.
        words: what was reported of it; nothing when all went well.

    """

    restart: int
    hosts: tuple[str, ...]
    began_at: float
    seconds: float
    history: History
    status: int
    words: tuple[str, ...] = ()

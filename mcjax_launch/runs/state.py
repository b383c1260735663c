"""The state of one run of a job, updated in the order in which events become known; pure.

Times (`at`, `..._at`) are time.monotonic's seconds in the launcher: the clocks of hosts are never
compared.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.runs.rank_run import Import, RankRun, Sample
from mcjax_launch.runs.stop_reasons import StopReason
from mcjax_launch.runs.tails import Tails
from mcjax_launch.wire.messages import Exited, Leftover, Usage
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wire.value import Changing, field

if TYPE_CHECKING:
    from mcjax_launch.runs.programs import ProcessRanks
    from mcjax_launch.runs.sequences import Gap, ProgramSequences

# A compilation that has used no processor for this long waits for something; the first limit
# applies if several ranks compile like that.
IDLE_TOGETHER_S, IDLE_S = scale_time(30.0), scale_time(60.0)


class Activity:
    """Times of the latest events over all ranks, in time.monotonic's seconds.

    Attributes:
        active_at: latest output, compilation, computation, program, start or end of a rank.
        heard_at: latest output of a rank, or report of its hook.
        printed_at: latest output of a rank; None if there was none.
        usage_at: latest report of ranks' usage by an agent.
        failed_at: latest failure of a rank that ends the job; None if there was none.
        jax_at: first import of jax or compilation in a rank; None if there was none.
        is_idle: True while the ranks of a session wait for a call.
        suspicion: words of the latest finding on a hang, and its time; None if there was none.

    """

    def __init__(self) -> None:  # making a dataclass of it would slow down every start
        self.active_at = self.heard_at = self.usage_at = 0.0
        self.printed_at: float | None = None
        self.failed_at: float | None = None
        self.jax_at: float | None = None
        self.is_idle = False
        self.suspicion: tuple[str, float] | None = None

    @property
    def suspected(self) -> str:
        """Words of the latest finding on a hang, if no rank has been heard since; else ""."""
        words, at = self.suspicion or ("", 0.0)
        return words if self.heard_at <= at else ""

    def record_call(self, at: float) -> None:
        """Record that ranks begin a call, or that the last of them has ended it."""
        self.active_at = self.heard_at = at

    def record_jax_use(self, at: float) -> None:
        """Record that a rank uses JAX."""
        if self.jax_at is None:
            self.jax_at = at


class Pause:
    """The pauses in which time limits do not run: debugging, or a stopped launcher.

    Attributes:
        ended_at: end of the latest pause, in time.monotonic's seconds; 0 before the first.
        resumed_at: latest time at which a stopped launcher went on; 0 if it never stopped.
        total_s: total seconds of finished debugging.

    """

    def __init__(self) -> None:
        self.ended_at = self.resumed_at = self.total_s = 0.0
        self._since: float | None = None

    def begin(self, now: float) -> None:
        """Record that debugging begins."""
        if self._since is None:
            self._since = now

    def end(self, now: float) -> None:
        """Record that debugging has ended."""
        if self._since is not None:
            self.total_s += now - self._since
            self._since, self.ended_at = None, now

    @property
    def is_on(self) -> bool:
        """True while the user debugs the job."""
        return self._since is not None


class RunState(Changing):
    """Facts about a run.

    Attributes:
        ranks: RankRun of each rank that this launcher starts.
        num_processes: number of ranks of the whole job, including those of other launchers.
        hosts: number of hosts.
        began_at: start time of the run.
        stop: reason for the end; None if the run goes on, or if a rank's failure ended it.
        stop_at: time at which `stop` became known.
        idle_since: value of `activity.active_at` at `stop_at`.
        stacks: lines with the ranks' stacks when a limit was reached, as they were printed.
        native_stacks: lines with the ranks' native stacks when a limit was reached.
        kernel_log: lines of the hosts' kernel logs on memory and GPUs, each with its host.
        unkillable: descriptions of processes that could not be killed.
        leftovers: processes that were ended because they had outlived ranks that ended well.
        failed_hints: lines about hints and rules that failed because of a bug.
        activity: times of the latest events, over all ranks.
        pause: time that counts for no limit.
        initialize_calls: number of calls of initialize(), in all ranks together.
        tails: the last output of each rank, as it arrives.
        sequences: programs that ranks have run in order; None if no rank records them.
        suggest: returns a command that passes PROGRAM its coordinates, if it lacks them; else "".
        expects_hooks: True if each rank's own process is a Python that should load the hook.
        survives: True if the job may outlive a rank's failure: see `launcher.survivors`.
        ended_all: reason, in words, why a failure ended the job although `survives`; else "".
        preempted_status: exit status of a run that a signal ends and whose ranks all exit with 0;
            None for the usual status.
        host_lost: first loss of a host that the job outlived; None if there was none.

    """

    ranks: dict[int, RankRun] = field(default_factory=dict)
    began_at: float = 0.0
    num_processes: int = 0
    hosts: int = 1
    job_id: str = ""
    coordinator: str = ""
    log_dir: str | None = None
    stop: StopReason | None = None
    stop_at: float | None = None
    idle_since: float | None = None
    stacks: tuple[str, ...] = ()
    native_stacks: list[str] = field(default_factory=list)
    kernel_log: list[str] = field(default_factory=list)
    unkillable: list[str] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    failed_hints: list[str] = field(default_factory=list)
    activity: Activity = field(default_factory=Activity)
    pause: Pause = field(default_factory=Pause)
    initialize_calls: int = 0
    tails: Tails = field(default_factory=Tails)
    sequences: ProgramSequences | None = None
    suggest: Callable[[], str] = str
    expects_hooks: bool = False
    survives: bool = False
    ended_all: str = ""
    preempted_status: int | None = None
    host_lost: StopReason | None = None

    _processes: dict[int, ProcessRanks] = field(default_factory=dict)  # by turn
    _events: int = 0
    _rank_of: dict[int, int] = field(default_factory=dict)  # by initialize()'s process

    # --- what happens ---

    def record_plan(
        self, job_id: str, coordinator: str, places: Mapping[int, str], log_dir: str | None
    ) -> None:
        """Record the host of each rank, before the ranks are started."""
        self.job_id, self.coordinator, self.log_dir = job_id, coordinator, log_dir
        self.ranks = {rank: RankRun(rank, host) for rank, host in places.items()}
        self._rank_of = {rank: rank for rank in places}
        self.tails.expect(len(places))

    def record_start(self, rank: int, pid: int, at: float) -> None:
        """Record that a rank's process has started."""
        process = self.ranks[rank].process
        process.pid, process.started_at, process.awaits = pid, at, None
        self.ranks[rank].usage.samples.clear()  # they are of the process it was forked from
        self.activity.active_at = at

    def record_import(self, host: str, module: str, at: float) -> None:
        """Record that a host imports a module for its ranks."""
        for run in self.ranks.values():
            if run.host == host:
                run.process.awaits = Import(module, at)
        self.activity.active_at = at

    def record_output(self, rank: int, at: float) -> None:
        """Record that a rank has written to stdout or stderr."""
        process = self.ranks[rank].process
        if process.first_output_at is None:
            process.first_output_at = at
        process.last_output_at = at
        activity = self.activity
        activity.active_at = activity.heard_at = activity.printed_at = at

    def record_usage(self, usage: Usage, at: float) -> None:
        """Record the resource usage of a host's ranks, as reported by its agent."""
        self.activity.usage_at = at
        for used in usage.ranks:
            run = self.ranks[used.rank]
            uses = [
                (gpu, mine) for gpu in usage.gpus for mine in gpu.ranks if mine.rank == used.rank
            ]
            if uses or run.usage.gpus.latest:
                run.usage.gpus.record(uses, at, is_alone=self.num_processes == 1)
            sample = Sample(at, used.cpu_s, used.rss_kib)
            since, spins = run.process.started_at or 0.0, run.compilations.on_accelerator
            moved = run.usage.add(sample, used.main_s, used.main_waits, since, spins)
            run.compilations.record_usage(run.usage.share, at)
            if run.shows_progress(moved):
                self.activity.active_at = at

    def record_programs(self, rank: int, total: int, at: float) -> None:
        """Record how many programs over several processes a rank has begun: that is progress."""
        if self.ranks[rank].programs.record(total, at):
            self.activity.active_at = at

    def record_exhaustion(self, rank: int, at: float) -> bool:
        """Record that a rank finds no memory on a GPU; return False if that was known."""
        gpus = self.ranks[rank].usage.gpus
        is_new = gpus.exhausted_at is None
        if is_new:
            gpus.exhausted_at = at
        return is_new

    def record_question(self, ranks: Iterable[int], at: float) -> None:
        """Record that the main threads of these ranks have been polled for their positions.

        The job counts as active until now if a rank on an accelerator has left no earlier poll
        unanswered.
        """
        for rank in ranks:
            run = self.ranks[rank]
            if run.main_thread.ask(at) and run.answers_for_progress:
                self.activity.active_at = at

    def record_exit(self, exited: Exited, at: float) -> bool:
        """Record that a rank's process has ended; return whether its status is not 0."""
        run = self.ranks[exited.rank]
        process = run.process
        process.status, process.ended_at = exited.status, at
        process.killer = exited.killer
        process.signals = exited.sent
        process.hooked = exited.hooked
        run.usage.cpu_s, run.usage.peak_kib = exited.cpu_s, exited.peak_kib
        run.compilations.under_way = 0
        if run.hidden_failure is None:
            # The signal may have met a dead process; and no program ends by SIGKILL itself.
            run.after_signal = bool(exited.sent) and exited.status != -signal.SIGKILL
        run.order = run.order or self.increment_order()
        self.activity.active_at = at
        if run.failed and run.failed_at is None:
            self.record_failure(run, at)
        return exited.status != 0

    def record_failure(self, run: RankRun, at: float) -> None:
        """Record that a rank's failure has become known."""
        run.failed_at = at
        if not self.survives:
            self.activity.failed_at = at

    @property
    def failed_early(self) -> bool:
        """True if a rank has failed, and no rank has joined the JAX job."""
        runs = self.ranks.values()
        joined = any(run.membership.joined_at is not None for run in runs)
        return not joined and any(run.failed for run in runs)

    @property
    def has_outlived_failure(self) -> bool:
        """True if the job goes on after a rank's failure."""
        runs = self.ranks.values()
        return self.survives and any(run.failed or run.process.lost for run in runs)

    def record_stop(self, stop: StopReason, at: float) -> None:
        """Record the reason to end the job; a later reason replaces it, but not its time."""
        if self.stop is None:
            self.stop_at, self.idle_since = at, self.activity.active_at
        self.stop = stop

    def record_resume(self, at: float) -> None:
        """Record that the stopped launcher runs again, and count ranks as active until now.

        While stopped, the launcher received nothing, so ranks that seem idle may have worked.
        """
        self.pause.ended_at = self.pause.resumed_at = at
        self.activity.active_at = self.activity.heard_at = at

    def record_process(self, rank: int, process: int) -> None:
        """Record the process number that a rank has given to initialize()."""
        self._rank_of[process] = rank

    def keep_output(self, rank: int, *, last: bool = False) -> None:
        """Copy the tails of a rank's output to its RankRun; if `last`, drop the tails."""
        run = self.ranks[rank]
        run.stdout, run.stderr = self.tails.get_tails(rank)
        if last:
            self.tails.forget(rank)

    def increment_order(self) -> int:
        """Return the next number for `RankRun.order`, from 1."""
        self._events += 1
        return self._events

    # --- what is known ---

    @property
    def running(self) -> list[RankRun]:
        """The RankRuns whose processes have neither ended nor been lost with their host."""
        return [run for run in self.ranks.values() if not run.is_gone]

    @property
    def unhooked(self) -> list[int]:
        """The ranks that ended by themselves without loading the expected hook."""
        if not self.expects_hooks:
            return []
        return [
            rank
            for rank, run in self.ranks.items()
            if run.status is not None and run.status >= 0
            if not run.process.hooked and not run.process.signals
        ]

    @property
    def ending(self) -> bool:
        """True if the job is about to end, so that ranks' later behavior proves nothing."""
        return self.activity.failed_at is not None or self.stop is not None

    @property
    def has_others(self) -> bool:
        """True if other launchers have started the other ranks of the job."""
        return len(self.ranks) < self.num_processes

    @property
    def jax_catches_sigterm(self) -> bool:
        """True if a running rank has joined: JAX then catches SIGTERM for the program to query."""
        return any(run.membership.joined_at is not None for run in self.running)

    @property
    def only_waits(self) -> bool:
        """True if a rank has failed and all running ranks wait in initialize() or at JAX's exit."""
        running = self.running
        failed = any(run.status not in (None, 0) for run in self.ranks.values())
        return bool(running) and failed and all(run.reached.waits_for_others for run in running)

    @property
    def only_ends(self) -> bool:
        """True if the programs of all running ranks have failed, and their Pythons still end."""
        running = self.running
        return bool(running) and all(run.process.has_failed for run in running)

    @property
    def idle_compilations(self) -> dict[int, float]:
        """Start of idleness, in time.monotonic's seconds, of each rank in an idle compilation."""
        since = self.pause.ended_at
        idle = {run: self._compute_idle_s(run, since) for run in self.running}
        waiting = [run for run, idle_s in idle.items() if idle_s >= IDLE_TOGETHER_S]
        least_s = IDLE_TOGETHER_S if len(waiting) > 1 else IDLE_S
        return {
            run.process_id: max(run.compilations.busy_at, since)
            for run in waiting
            if idle[run] >= least_s
        }

    @property
    def is_compiling(self) -> bool:
        """True if a rank compiles, other than in an idle compilation."""
        compiling = {run.process_id for run in self.running if run.compilations.under_way}
        return bool(compiling and compiling - self.idle_compilations.keys())

    def _compute_idle_s(self, run: RankRun, since: float) -> float:
        """Return the seconds for which a rank, and the rank compiling for it, have been idle."""
        awaited = self.ranks.get(run.compilations.awaits)
        runs = (run,) if awaited is None else (run, awaited)
        return min(run.compilations.compute_idle_s(since) for run in runs)

    def find_rank(self, process: int | None) -> RankRun | None:
        """Return the RankRun that has joined with this process number; None if there is none."""
        run = None if process is None else self.ranks.get(self._rank_of.get(process, -1))
        return run if run is not None and run.membership.joined_at is not None else None

    # --- the programs that span processes ---

    def find_members(
        self, run: RankRun, platform: str, processes: Collection[int] | None
    ) -> frozenset[int]:
        """Return the ranks of the processes in a rank's program; all ranks for None.

        `processes` are numbers on the backend of `platform`; unknown numbers are omitted.
        """
        if processes is None:
            return frozenset(self._rank_of.values())
        known = self.get_processes(run).get_ranks(platform)
        told = set(known.values())
        others = {number: rank for number, rank in self._rank_of.items() if rank not in told}
        ranks = {**others, **known}
        return frozenset(ranks[number] for number in processes if number in ranks)

    def get_processes(self, run: RankRun) -> ProcessRanks:
        """Return the ranks of the JAX processes in the turn that a rank is in."""
        turn = run.membership.turn
        if turn not in self._processes:
            from mcjax_launch.runs.programs import ProcessRanks  # as only Python's ranks need

            self._processes[turn] = ProcessRanks()
        return self._processes[turn]

    @property
    def differs(self) -> bool:
        """True if ranks have run different programs."""
        return self.sequences is not None and bool(self.sequences.differences)

    @property
    def gaps(self) -> Sequence[Gap]:
        """Programs that some ranks have begun and others have not; see `ProgramSequences.gaps`."""
        return self.sequences.gaps if self.sequences is not None else ()

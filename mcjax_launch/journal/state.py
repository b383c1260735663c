"""The state of one run of a job, updated in the order in which events become known; pure.

Times (`at`, `..._at`) are time.monotonic's seconds in the launcher: the clocks of hosts are never
compared.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from mcjax_launch.journal.rank_run import BUSY, ErrorReport, Import, RankRun, Sample
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.tails import Tails
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.value import Changing, field

if TYPE_CHECKING:
    from mcjax_launch.journal import facts
    from mcjax_launch.journal.programs import ProcessRanks
    from mcjax_launch.wire.frames import Data
    from mcjax_launch.wire.messages import (
        Exited,
        FromHook,
        Leftover,
        Started,
        Usage,
    )

# Unhandled errors that are kept per rank; a hook reports fewer.
_MOST_ERRORS = 256


class Activity:
    """Times of the latest events over all ranks, in time.monotonic's seconds.

    Attributes:
        active_at: latest time at which something moved: output, a program over several processes, a
            compilation or another report of a hook, the start or end of a rank.
        printed_at: latest output of a rank; None if there was none.
        failed_at: latest failure of a rank that ends the job; None if there was none.
        jax_at: first import of jax or compilation in a rank; None if there was none.
        is_idle: True while the ranks of a session wait for a call.

    """

    def __init__(self) -> None:  # making a dataclass of it would slow down every start
        self.active_at = 0.0
        self.printed_at: float | None = None
        self.failed_at: float | None = None
        self.jax_at: float | None = None
        self.is_idle = False

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
        picture: where the ranks were when nothing moved, or when a limit was reached; else "".
        stacks: lines with the ranks' stacks when a limit was reached, as they were printed.
        kernel_log: lines of the hosts' kernel logs on memory and GPUs, each with its host.
        unkillable: descriptions of processes that could not be killed.
        leftovers: processes that were ended because they had outlived ranks that ended well.
        told: the words of all findings.
        failed_hints: lines about hints and rules that failed because of a bug.
        activity: times of the latest events, over all ranks.
        pause: time that counts for no limit.
        initialize_calls: number of calls of initialize(), in all ranks together.
        tails: the last output of each rank, as it arrives.
        sequences: programs that ranks have run in order; None if no rank records them.
        suggest: returns a command that passes PROGRAM its coordinates, if it lacks them; else "".
        expects_hooks: True if each rank's own process is a Python that should load the hook.
        survives: True if the job may outlive a rank's failure: see `Job.survives`.
        each_alone: True if each rank runs without the others (--preview).
        preview: what --preview reports, as the record has it; None without the option.
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
    picture: str = ""
    stacks: tuple[str, ...] = ()
    kernel_log: list[str] = field(default_factory=list)
    unkillable: list[str] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    failed_hints: list[str] = field(default_factory=list)
    activity: Activity = field(default_factory=Activity)
    pause: Pause = field(default_factory=Pause)
    initialize_calls: int = 0
    tails: Tails = field(default_factory=Tails)
    sequences: Any = None
    suggest: Callable[[], str] = str
    expects_hooks: bool = False
    survives: bool = False
    each_alone: bool = False
    preview: dict[str, object] | None = None
    ended_all: str = ""
    preempted_status: int | None = None
    host_lost: StopReason | None = None

    _processes: dict[int, ProcessRanks] = field(default_factory=dict)  # by turn
    _events: int = 0
    _rank_of: dict[int, int] = field(default_factory=dict)  # by initialize()'s process

    # --- what happens ---

    def on_planned(self, plan: facts.Planned, at: float) -> None:
        """Make the RankRun of each rank, before the ranks are started."""
        self.job_id, self.coordinator, self.log_dir = plan.job_id, plan.coordinator, plan.log_dir
        self.ranks = {rank: RankRun(rank, host) for rank, host in plan.places.items()}
        self._rank_of = {rank: rank for rank in plan.places}
        self.tails.expect(len(plan.places))

    def on_started(self, started: Started, at: float) -> None:
        """Record that a rank's process has started."""
        run = self.ranks[started.rank]
        process = run.process
        process.pid, process.started_at, process.awaits = started.pid, at, None
        run.usage.samples.clear()  # they are of the process it was forked from
        self.activity.active_at = at

    def on_import_began(self, importing: facts.ImportBegan, at: float) -> None:
        """Record that a host imports a module for its ranks."""
        for run in self.ranks.values():
            if run.host == importing.host:
                run.process.awaits = Import(importing.module, at)
        self.activity.active_at = at

    def on_data(self, data: Data, at: float) -> None:
        """Record that a rank has written to stdout or stderr, and keep the end of that."""
        self.tails.feed(data.rank, data.stream, data.payload)
        process = self.ranks[data.rank].process
        if process.first_output_at is None:
            process.first_output_at = at
        process.last_output_at = at
        activity = self.activity
        activity.active_at = activity.printed_at = at

    def on_usage(self, usage: Usage, at: float) -> None:
        """Record the resource usage of a host's ranks, as reported by its agent."""
        for used in usage.ranks:
            run = self.ranks[used.rank]
            uses = [
                (gpu, mine) for gpu in usage.gpus for mine in gpu.ranks if mine.rank == used.rank
            ]
            if uses:
                run.usage.gpus.record(uses, at)
            sample = Sample(at, used.cpu_s, used.rss_kib)
            run.usage.add(sample, run.process.started_at or 0.0)
            if run.compilations.under_way and run.usage.share > BUSY:
                self.activity.active_at = at

    def on_from_hook(self, event: FromHook, at: float) -> None:
        """Record what the hook in a rank's Python has reported."""
        run = self.ranks[event.rank]
        membership = run.membership
        self.activity.active_at = at
        match event.message:
            case hook.Joining() as call:
                self._record_call(run, event, call, at)
            case hook.Joined(process_id=process) if membership.joined_at is None:
                membership.joined_at = at
                self.record_process(event.rank, process)
            case hook.ProcessNumber(platform, process) if membership.joined_at is not None:
                self.get_processes(run).record(event.rank, platform, process)
            case hook.Leaving() if membership.leaving_at is None:
                membership.leaving_at = at
            case hook.Program() as program:
                from mcjax_launch.journal.programs import RanProgram  # as few jobs need

                ranks = self.find_members(run, program.platform, program.processes)
                run.compilations.ran[program.where] = RanProgram(program.name, ranks, program.where)
            case hook.Compiling() | hook.ImportedJax() as fact:
                self.activity.record_jax_use(at)
                _record_fact(run, fact, at)
            case hook.Failed() as failure:
                self._record_failure(run, event, failure, at)
            case fact:
                _record_fact(run, fact, at)

    def _record_call(self, run: RankRun, event: FromHook, call: hook.Joining, at: float) -> None:
        """Record a call of initialize() by a process of a rank."""
        self.initialize_calls += 1
        membership = run.membership
        if event.beside:
            membership.second_process = call.where
        elif not event.repeated:
            if membership.has_called:  # the next program of this rank
                membership.turn += 1
                membership.backend = None
                membership.joined_at = membership.leaving_at = None
                membership.left = False
                run.unhandled_errors.clear()
            membership.joining_at, membership.call, membership.refused = at, call, None

    def _record_failure(
        self, run: RankRun, event: FromHook, failure: hook.Failed, at: float
    ) -> None:
        """Record a program's failure."""
        if run.hidden_failure is not None:
            return
        others = self.get_processes(run).find_renumbered_ranks(self.ranks)
        if len(others) == len(failure.slices):  # by process; make it by rank
            by_rank = sorted((rank, failure.slices[process]) for process, rank in others.items())
            failure = failure.copy_with(slices=tuple(slice_ for _, slice_ in by_rank))
        run.process.has_failed = run.process.has_failed or event.main
        if failure.joined:
            run.failure = failure
            run.after_signal, run.process.signals = bool(event.sent), event.sent
            if run.failed:
                self.record_failure(run, at)
            run.order = self.increment_order()
            self.keep_output(event.rank)
        elif event.main:  # explains a status that is yet to come
            run.failure = failure

    def on_program_obtained(self, compiled: facts.ProgramObtained, at: float) -> None:
        """Count a program that a rank has compiled or loaded."""
        compilations = self.ranks[compiled.rank].compilations
        compilations.count_obtained(compiled.is_loaded, compiled.seconds)

    def on_awaits_compilation(self, awaits: facts.AwaitsCompilation, at: float) -> None:
        """Record which rank compiles a program for another one."""
        self.ranks[awaits.rank].compilations.awaits = awaits.other

    def on_programs_counted(self, counted: facts.ProgramsCounted, at: float) -> None:
        """Record how many programs over several processes a rank has begun: that is progress."""
        if self.ranks[counted.rank].programs.record(counted.total, at):
            self.activity.active_at = at

    def on_memory_exhausted(self, exhausted: facts.MemoryExhausted, at: float) -> None:
        """Record that a rank finds no memory on a GPU."""
        self.ranks[exhausted.rank].usage.gpus.exhausted_at = at

    def on_debugging_began(self, _: facts.DebuggingBegan, at: float) -> None:
        """Stop the time limits."""
        self.pause.begin(at)

    def on_debugging_ended(self, _: facts.DebuggingEnded, at: float) -> None:
        """Let the time limits go on; the ranks count as active until now."""
        self.pause.end(at)
        self.activity.active_at = at

    def on_calls_changed(self, calls: facts.CallsChanged, at: float) -> None:
        """Record whether a session's ranks make a call: ranks that wait for one do not hang."""
        self.activity.is_idle = calls.is_idle
        self.activity.active_at = at

    def on_exited(self, exited: Exited, at: float) -> None:
        """Record that a rank's process has ended."""
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
        if exited.status:
            self.keep_output(exited.rank)

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

    def on_stop_reason(self, stop: StopReason, at: float) -> None:
        """Record the reason to end the job; a later reason replaces it, but not its time."""
        if self.stop is None:
            self.stop_at, self.idle_since = at, self.activity.active_at
        self.stop = stop

    def on_resumed(self, _: facts.Resumed, at: float) -> None:
        """Count ranks as active until now, because the launcher was stopped.

        While stopped, the launcher received nothing, so ranks that seem idle may have worked.
        """
        self.pause.ended_at = self.pause.resumed_at = at
        self.activity.active_at = at

    def on_ranks_lost(self, lost: facts.RanksLost, at: float) -> None:
        """Record that ranks were lost with their host."""
        for rank in lost.ranks:
            self.ranks[rank].process.lost = True

    def on_host_gone(self, gone: facts.HostGone, at: float) -> None:
        """Record what the agent of a host, on which no process is left, has found there."""
        self.unkillable += gone.bye.unkillable
        self.leftovers += gone.bye.leftovers
        self.kernel_log += [f"{gone.host}: {line}" for line in gone.bye.kernel_log]

    def on_finding(self, finding: facts.Finding, at: float) -> None:
        """Record that a finding has been told."""
        self.told.add(finding.words)

    def on_stacks_shown(self, shown: facts.StacksShown, at: float) -> None:
        """Keep the stacks that the user has seen."""
        self.stacks = tuple(shown.lines)

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
            from mcjax_launch.journal.programs import ProcessRanks  # as only Python's ranks need

            self._processes[turn] = ProcessRanks()
        return self._processes[turn]

    @property
    def differs(self) -> bool:
        """True if ranks have run different programs."""
        return self.sequences is not None and bool(self.sequences.differences)

    @property
    def gaps(self) -> Sequence[Any]:
        """Programs that some ranks have begun and others have not; see `sequences`."""
        return self.sequences.gaps if self.sequences is not None else ()


def _record_fact(run: RankRun, fact: hook.HookMessage, at: float) -> None:
    """Record what only concerns the rank."""
    membership, process, compilations = run.membership, run.process, run.compilations
    match fact:
        case hook.ImportedJax():
            membership.imported = fact
        case hook.Backend():
            membership.backend = fact
        case hook.NotJoined():
            membership.refused = fact if membership.joined_at is None else None
        case hook.CalledBelow():
            membership.called_below.setdefault(fact, at)
        case hook.Left():
            membership.left = True
        case hook.Compiling():
            compilations.begin(fact)
            membership.goes_on = membership.refused is not None
        case hook.Compiled():
            compilations.under_way -= 1
        case hook.Crashed(stack):
            process.stack = stack
        case hook.CollectedTests():
            process.tests = fact
        case hook.FailedTest():
            process.failed_test = fact, at
        case hook.Handling():
            run.handling = fact
        case hook.AtBarrier():
            run.record_barrier(fact)
        case hook.UnhandledError() if len(run.unhandled_errors) < _MOST_ERRORS:
            run.unhandled_errors.append(ErrorReport(at, fact))

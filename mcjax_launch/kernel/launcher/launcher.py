"""Controller of an attempt of a job, between agents' messages, console and diagnosis."""

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from mcjax_launch import features
from mcjax_launch.console.console import Console
from mcjax_launch.console.log_files import remove_leftovers
from mcjax_launch.console.prefix import find_common_folder, make_labels
from mcjax_launch.diagnosis.root_cause import JobStopped, RankFailed, ran_other_collective
from mcjax_launch.diagnosis.summary import (
    LONG_S,
    Summary,
    describe_failure,
    describe_rank_end,
    find_warnings,
    format_duration,
    summarize,
)
from mcjax_launch.diagnosis.verdict import determine_verdict
from mcjax_launch.errors import LaunchError, save_traceback
from mcjax_launch.events.events import Events
from mcjax_launch.job import devices
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan, Rank, describe_cores
from mcjax_launch.kernel.launcher.agent_orders import make_start_order
from mcjax_launch.kernel.launcher.front import Front
from mcjax_launch.kernel.launcher.part import DebuggerDisplay, OneShotTimer, TimerAction
from mcjax_launch.kernel.launcher.stack_requests import StackRequests
from mcjax_launch.kernel.launcher.startup import Startup
from mcjax_launch.kernel.launcher.stop_policy import (
    Effects,
    Note,
    RankFailure,
    SetReason,
    ShowStacks,
    StopPolicy,
    StopRanks,
)
from mcjax_launch.kernel.launcher.time_limits import TimeLimits, compute_usage_period_s
from mcjax_launch.kernel.transport.connection import AgentConnection
from mcjax_launch.kernel.transport.pool import AgentPool, Failure
from mcjax_launch.kernel.transport.remote_commands import Transport
from mcjax_launch.kernel.wire import exit_status, hook_environ, hook_messages, messages
from mcjax_launch.kernel.wire.codec import Message
from mcjax_launch.kernel.wire.frames import Data, Raw
from mcjax_launch.kernel.wire.loop import READ
from mcjax_launch.kernel.wire.signals import ENDING, FORWARDED
from mcjax_launch.ranks import format_count
from mcjax_launch.runs import stop_reasons
from mcjax_launch.runs.rank_run import DevicesAsked, RankRun, Verdict
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import StopReason
from mcjax_launch.runs.tails import Tails

# Bytes; less than the pipe from the agent holds, so the agent seldom waits for room.
_MOST_WINDOW = 3 << 18
_WINDOW_OF_ALL = 16 << 20
_AGENT_END_S = 10.0
# Seconds for the kernel to end killed ranks, before they count as unkillable.
_PATIENCE_S = 5.0
#: The same if another attempt may follow: it needs the GPUs' memory, and freeing that of eight GPUs
#: takes longer.
FREED_S = 60.0
# Seconds; a job that begins sooner needs no status line.
_BEGINS_S = 1.0
_DEBUG = "MCJAX_DEBUG"
# Parts that belong to no feature.
_EXPLANATIONS, _SURVIVORS = "explanations", "survivors"
_OWN_PARTS = {name: f"mcjax_launch.kernel.launcher.{name}" for name in (_EXPLANATIONS, _SURVIVORS)}


if TYPE_CHECKING:
    from mcjax_launch.console.bottom import StatusLine
    from mcjax_launch.detached.visitors import Visitors
    from mcjax_launch.diagnosis.snapshots import Stack
    from mcjax_launch.diagnosis.view import Fact
    from mcjax_launch.kernel.launcher.explanations import Explanations
    from mcjax_launch.kernel.launcher.part import LauncherPart
    from mcjax_launch.kernel.launcher.survivors import Survivors
    from mcjax_launch.kernel.transport.staged_paths import StagedPaths
    from mcjax_launch.kernel.wire.loop import Timer


class Launcher:
    """Controller of an attempt of a job.

    Args:
        job: the job to run.
        hosts: hosts of the job; all of them get ranks.
        transport: starter of the agents.
        front: the launcher's process: a loop, signals, streams.
        state: the record of the attempt, which the launcher fills.
        restart: number of earlier attempts.
        last: True if no other attempt may follow.
        kept: objects that features keep from one attempt to the next, by feature name.

    Attributes:
        lost: hosts that could not be reached or were lost.

    Raises:
        LaunchError: a path of --sync does not exist, or there are too few slots.

    """

    def __init__(
        self,
        job: Job,
        hosts: Sequence[Host],
        transport: Transport,
        *,
        front: Front,
        state: RunState,
        restart: int = 0,
        last: bool = True,
        kept: "dict[str, object] | None" = None,
    ) -> None:
        self.lost: set[Host] = set()
        self.job = job
        self.front = front
        self.kept: dict[str, object] = {} if kept is None else kept
        self.restart, self._last = restart, last
        self.state = state
        self._plan: Plan | None = None
        self.policy = StopPolicy(
            job.get_grace_s, has_keys=bool(front.shows_stacks), again=front.again
        )
        paths = _make_staged_paths(job) if job.sync else None
        rewrite = None if paths is None else paths.in_bytes
        self.events = self._connect_events(front.events)
        state.tails = Tails(job.record or self.events.is_read, rewrite)
        self.console = self._make_console(rewrite)
        self.console.is_stalled = lambda: any(link.is_stalled for link in self.links)
        trace = self.console.say if "frames" in os.environ.get(_DEBUG, "") else None
        self.pool = AgentPool(
            hosts,
            transport,
            front.loop,
            min(_MOST_WINDOW, _WINDOW_OF_ALL // len(hosts)),
            self._on_message if paths is None else paths.wrap_on_frame(self._on_message),
            self._handle_lost_agent,
            self._on_unreachable_host,
            trace,
        )
        self.startup = Startup(
            job,
            hosts,
            self._start,
            self._on_start_failure,
            lambda: self.pool.is_settled,
            restart,
            self.console.note,
            self.console.say,
        )
        self.stacks = StackRequests()
        acting = TimerAction(self.policy, self.perform)
        self._timers: list[Timer] = [self.console, self.pool, self.startup, self.stacks, acting]
        if front.saves is not None:
            front.saves.use_console(self.console.say, self.console.note)
            self._timers.append(TimerAction(front.saves, self.stop))
        self._parts: dict[str, LauncherPart] = {}  # by their names
        self.debuggers = DebuggerDisplay()

    def _connect_events(self, events: Events) -> Events:
        events.attend(self._give_credit, self._on_events_failure)
        return events

    def report_beginning(self, hosts: Sequence[Host], attempt: int) -> None:
        """Send the event that this attempt begins; attempt 0 is the beginning of the run."""
        job_id, names = self.startup.job_id, [host.name for host in hosts]
        if attempt == 0:
            self.events.report_begin(job_id, self.job.program, self.job.num_processes, names)
        else:
            self.events.report_restart(attempt, job_id, names)

    def _make_console(self, rewrite: Callable[[bytes], bytes] | None) -> Console:
        targets = self.front.open_outputs(self._give_credit)
        for target in targets:
            target.in_log = self.job.on_github
        return Console(
            self.job,
            targets,
            self._on_reader_loss,
            self._give_credit,
            rewrite,
            self.front.verbose_option,
            self.events,
        )

    def run(self) -> Summary:
        """Run the attempt, print its summary, and return it.

        Raises:
            LaunchError: the attempt could not be started; no process of it is left.

        """
        self.front.loop.watch(self.front.signals.fd, READ, lambda ready: self._read_signals())
        if (line := self.console.status_line) is not None:
            due = time.monotonic() + _BEGINS_S
            self._timers.append(OneShotTimer(due, partial(self._begin_status, line)))
        if self.front.standby is not None:
            self._serve(self.front.standby.visitors)
        try:
            self.pool.begin()
            while not self._is_over():
                self._run_turn()
            self._timers = [self.console, self.pool]
            self._account_for_all()
            lost_output = any(link.greeted and not link.is_over for link in self.links)
        except BaseException:
            self.console.remove_rows()  # restores the terminal's scrolling region after a bug
            raise
        finally:
            for part in self._parts.values():
                part.close(time.monotonic())
            self._hang_up()
            for rank in self.state.ranks:
                self.state.keep_output(rank, last=True)
        if self.policy.error is not None:
            self.console.finish_ranks()  # some ranks may have begun
            self._write_all()
            raise self.policy.error
        return self._conclude(lost_output)

    def _hang_up(self) -> None:
        """Close the connections to the agents, except to agents kept for another run."""
        resting = self.front.resting
        limit_s = _AGENT_END_S if self.policy.interrupts < 3 else 1
        self.pool.hang_up(limit_s, keep=resting is not None)
        if resting is not None:
            resting.keep(self.pool)

    def say(self, text: str) -> None:
        """Print a line of the launcher, also after the attempt's end."""
        self.console.say(text)

    # --- start ---

    def _start(self, plan: Plan) -> None:
        """Start the ranks; called when every host is ready."""
        if self.policy.ending:
            return  # the job ends before any rank was started
        self._plan = plan
        self.state.expects_hooks = self.job.expects_hooks
        self.state.suggested = " ".join(self.job.suggested_program)
        named = make_labels(plan, self.job.log_dir)
        again = self.restart > 0
        if not again:
            remove_leftovers(named, self.job.num_processes)
        self.console.add_ranks(named, append=again)
        places = {rank.process_id: rank.host.name for rank in plan.ranks}
        self.state.record_plan(plan.job_id, plan.coordinator, places, find_common_folder(named))
        for label in named:
            self.state.ranks[label.process_id].share.log_folder = label.folder
        limits = TimeLimits(self.job, self.state, time.monotonic())
        self._timers.append(TimerAction(limits, self._on_limit))
        self.policy.on_ranks_start()
        parts = [
            self._load_part(name)
            for name in (*_list_own_parts(self.job), *features.list_used(self.job))
        ]
        on_host = plan.group_by_host()
        for link in self.links:
            self._start_on(link, on_host[link.host])
        for part in parts:
            part.on_begin(plan, time.monotonic())
        self.console.show_detail(
            f"job {plan.job_id}: {format_count(len(plan.ranks), 'rank')}, "
            f"coordinator {plan.coordinator}"
        )
        self._report_devices(plan)
        for host in self.startup.portable:
            self.console.show_detail(
                f"{host.name}: portable mode, without the features that need Linux"
            )

    def _start_on(self, link: AgentConnection, ranks: Sequence[Rank]) -> None:
        assert self._plan is not None
        line = self.console.status_line
        watched = self.front.standby is not None or (line is not None and line.is_live)
        every_s = compute_usage_period_s(self.job, watched=watched)
        parts = [self._load_part(feature) for feature in features.list_used(self.job)]
        for order in [order for part in parts for order in part.make_orders(ranks, self._plan)]:
            link.send(order)
        link.send(make_start_order(self._plan, map(self.add_variables, ranks), self.job, every_s))
        link.open_window()

    def add_variables(self, rank: Rank) -> Rank:
        """Return a rank with features' environment variables added to its own."""
        variables = {
            hook_environ.get_feature_variable(feature): what
            for feature, part in self._parts.items()
            if (what := part.get_variable(rank))
        }
        return rank.copy_with(env={**rank.env, **variables})

    def _report_devices(self, plan: Plan) -> None:
        """Record the devices that each rank gets, and print them."""
        asked = _find_requested_devices(self.job)
        for rank in plan.ranks:
            run = self.state.ranks[rank.process_id]
            run.share.asked = asked
            run.share.gpus, run.share.uneven_gpus = rank.gpus, plan.gpus[rank.host].uneven
            run.share.cores = rank.bound_to
        for line in devices.describe_gpus(plan.gpus):
            self.console.show_detail(line)
        if line := describe_cores(plan.ranks, self.job.bind_cores):
            self.console.show_detail(line)
        for line in plan.notes:
            self.console.note(line)

    def _on_start_failure(self, error: LaunchError) -> None:
        self.perform(self.policy.on_start_failure(error))

    @property
    def links(self) -> list[AgentConnection]:
        return self.pool.links

    # --- messages from agents ---

    def _on_message(self, link: AgentConnection, frame: Message | Data | Raw) -> None:
        match frame:
            case Raw(feature=feature):
                self._on_feature_message(feature, link, frame)
            case Data(rank=rank, stream=stream, payload=payload):
                self.state.record_output(rank, time.monotonic())
                self.state.tails.feed(rank, stream, payload)
                self.console.feed(rank, stream, payload)
                if self.console.has_room:
                    link.give_credit()
            case messages.Exited() | messages.Started() | messages.Usage() | messages.NotYetGone():
                self._on_rank_report(link, frame)
            case messages.FromHook(message=said):
                if said.feature:
                    self._on_feature_message(said.feature, link, frame)
                else:
                    self._on_hook_message(frame)
            case messages.Stacks() | messages.StacksComplete():
                self.stacks.record_stacks(link, frame)
            case messages.Ending() | messages.InternalError():
                self._on_agent_end(link, frame)
            case messages.NothingLeft():
                pass  # the pool knows
            case messages.ToLauncher(feature=feature) if feature:
                self._on_feature_message(feature, link, frame)
            case messages.NativeStacks(rank, pid, text):
                title = f"rank {rank} on {link.host.name}, pid {pid}:"
                self.state.native_stacks += [title, *text.splitlines()]
            case messages.Bye(unkillable, leftovers, not_removed, kernel_log):
                self.state.unkillable += unkillable
                self.state.leftovers += leftovers
                self.state.kernel_log += [f"{link.host.name}: {line}" for line in kernel_log]
                if not_removed:
                    self.console.note(f"{link.host.name}: could not remove {not_removed}")
                if leftovers:
                    self._load_part(_EXPLANATIONS)
                self._report_agent_end(link)
            case _:
                self.startup.on_message(link, frame)

    def _on_rank_report(self, link: AgentConnection, message: Message) -> None:
        match message:
            case messages.Started(rank, pid):
                self.state.record_start(rank, pid, time.monotonic())
                self.events.report_rank_start(rank, link.host.name, pid)
                self.console.show_detail(f"rank {rank} on {link.host.name}: pid {pid}")
                standby, runs = self.front.standby, self.state.ranks.values()
                if standby is not None and all(run.process.started_at for run in runs):
                    standby.record_start()
            case messages.Exited(rank):
                if self.state.record_exit(message, time.monotonic()):
                    self._on_rank_end(rank)
                self._on_rank_message(message)
                run = self.state.ranks[rank]
                self.events.report(
                    "ended",
                    rank=rank,
                    host=run.host,
                    exit_status=run.exit_status,
                    message=describe_rank_end(run),
                )
                self.console.show_detail(f"rank {rank}: {describe_rank_end(run)}")
                self._shorten_grace_if_waiting()
            case messages.Usage():
                self.state.record_usage(message, time.monotonic())
            case messages.NotYetGone(processes):
                self.console.note(
                    f"{link.host.name}: waiting up to {FREED_S:g} s for killed processes to end, "
                    f"before another attempt: {'; '.join(processes)}"
                )

    def _on_hook_message(self, message: messages.FromHook) -> None:
        from mcjax_launch.runs import hook_events  # only Python's ranks need it

        rank, said = message.rank, message.message
        if isinstance(said, hook_messages.Failed) and message.main and not said.has_calls:
            self.console.announce_failure(rank, said.summary)
        has_failed = hook_events.apply(self.state, message, time.monotonic())
        self._report_of_hook(rank, said)
        if has_failed:
            self._on_rank_end(rank)
        if self.state.ranks[rank].compilations.on_accelerator and not self.state.ending:
            self._load_part(features.ON_ACCELERATORS)
        self._load_part(_EXPLANATIONS)  # imported only now: each start would wait for that
        self._on_rank_message(message)
        self._shorten_grace_if_waiting()

    def on_fact(self, fact: "Fact", now: float) -> None:
        """Pass a new fact, found by a part, to the explanations."""
        if self._explanations is not None:
            self._explanations.on_fact(fact, now)

    def _on_rank_message(self, message: messages.FromHook | messages.Exited) -> None:
        for part in list(self._parts.values()):
            part.on_rank_message(message, time.monotonic())

    def _report_of_hook(self, rank: int, said: hook_messages.HookMessage) -> None:
        host = self.state.ranks[rank].host
        match said:
            case hook_messages.Joining():
                self.events.report("joining", rank=rank, host=host)
                if said.replaced and rank == min(self.state.ranks):
                    self.console.show_detail(
                        f"initialize(){f' at {said.where}' if said.where else ''} names "
                        f"{said.replaced}, a placeholder: using the job's own coordinator"
                    )
            case hook_messages.Joined():
                self.events.report("joined", rank=rank, host=host)
            case hook_messages.Failed() if not self.state.ranks[rank].was_interrupted:
                self.events.report("failed", rank=rank, host=host, message=describe_failure(said))

    def _on_feature_message(
        self, feature: str, link: AgentConnection, frame: messages.ToLauncher | Raw
    ) -> None:
        """Pass an agent's message to its feature's part, if this job uses the feature."""
        if feature in self._parts or feature in features.list_for_hosts(self.job):
            self._load_part(feature).on_message(link, frame, time.monotonic())

    @property
    def _explanations(self) -> "Explanations | None":
        return cast("Explanations | None", self._parts.get(_EXPLANATIONS))

    @property
    def _survivors(self) -> "Survivors | None":
        return cast("Survivors | None", self._parts.get(_SURVIVORS))

    def _load_part(self, feature: str) -> "LauncherPart":
        """Return the part of a feature or of the kernel; load it at its first use."""
        part = self._parts.get(feature)
        if part is None:
            module = import_module(
                _OWN_PARTS.get(feature, f"mcjax_launch.features.{feature}.launcher")
            )
            part = self._parts[feature] = module.PART(self)
            self._timers.append(part)
            if self.policy.stopping:
                part.on_stop(time.monotonic())
        return part

    def _shorten_grace_if_waiting(self) -> None:
        """Shorten the grace after the user's signal if the remaining ranks only wait, or end."""
        if self.policy.interrupts and (self.state.only_ends or self.state.only_waits):
            self.perform(self.policy.shorten_grace(self.state.only_ends))

    def _on_rank_end(self, rank: int) -> None:
        """Handle a rank that has failed, or is about to end with a status other than 0."""
        run = self.state.ranks[rank]
        self.state.keep_output(rank)
        verdict = determine_verdict(run)
        self.console.set_verdict(rank, verdict, run.failure)
        if self._survivors is not None and self._survivors.on_rank_failure(run):
            return
        failure = None
        if run.failed and not run.after_signal:
            is_victim = verdict is Verdict.VICTIM
            failure = RankFailure(rank, is_victim, _is_signalled(run), _is_early(run))
            if ran_other_collective(run) or (failure.is_victim and _gave_up_waiting(run)):
                # Ask for the ranks' positions before they are ended.
                self.stacks.request(self.links, self._record_late_positions)
        self.perform(self.policy.on_rank_end(failure))

    def _record_late_positions(self, stacks: list["Stack"]) -> None:
        from mcjax_launch.diagnosis.snapshots import make_snapshots

        for seen in make_snapshots(self.state, stacks).values():
            # The rank is ended, so no rank waits for it any longer.
            stands = seen.blocked_at if seen.is_surely_in_jax else seen.position_with_threads
            seen.run.late_position = seen.shared_compilation or stands

    def _on_agent_end(self, link: AgentConnection, message: Message) -> None:
        """Handle the early end of an agent: a signal has stopped it, or it has a bug."""
        match message:
            case messages.Ending(reason):
                why = f"its agent was stopped by {reason}"
                stop = stop_reasons.agent_stopped(link.host.name, why)
                self.perform(self.policy.record_unexplained_stop(stop, time.monotonic()))
            case messages.InternalError(error, traceback):
                self.stop(
                    stop_reasons.internal_error(_save_bug_report(link.host, error, traceback))
                )

    def _on_unreachable_host(self, failure: Failure) -> None:
        self.lost.add(failure.host)
        if failure.traceback:
            error = failure.traceback.strip().rpartition("\n")[2]
            bug = _save_bug_report(failure.host, error, failure.traceback)
            self._on_start_failure(LaunchError(bug, exit_status.INTERNAL_ERROR))
        elif failure.stopped:
            stop = stop_reasons.agent_stopped(failure.host.name, failure.reason)
            self.perform(self.policy.record_unexplained_stop(stop, time.monotonic()))
        else:
            self.startup.record_failure(failure)

    def _handle_lost_agent(self, link: AgentConnection, why: str) -> None:
        """Handle the loss of an agent, which counts as the loss of its running ranks."""
        self.lost.add(link.host)
        self._report_agent_end(link)
        if self.policy.error is not None:
            return
        there = [
            rank for rank in (self._plan.ranks if self._plan else ()) if rank.host is link.host
        ]
        lost = [self.state.ranks[rank.process_id] for rank in there]
        lost = [run for run in lost if not (self.state.survives and run.is_gone)]
        for run in lost:
            run.process.lost = True
        stop = stop_reasons.host_lost(link.host.name, why)
        if self._survivors is None or not self._survivors.on_host_loss(stop, link.host, lost):
            self.stop(stop)

    def _report_agent_end(self, link: AgentConnection) -> None:
        self.debuggers.on_agent_loss(link, time.monotonic())

    # --- the end ---

    def stop(self, stop: StopReason) -> None:
        """Stop the job for a reason; the policy decides how."""
        self.perform(self.policy.end_job(stop))

    def perform(self, effects: Effects) -> None:
        """Carry out the effects that the policy has decided on, in their order."""
        for effect in effects:
            match effect:
                case SetReason(stop):
                    self.state.record_stop(stop, time.monotonic())
                case StopRanks(signum, grace_s, by_user, settles):
                    self.startup.stop()
                    for part in self._parts.values():
                        part.on_stop(time.monotonic())
                    self.console.fold_victims(own_term=not by_user)
                    is_last = self._last or self.policy.final
                    patience_s = _PATIENCE_S if is_last and not self.job.watch else FREED_S
                    self.pool.stop(grace_s + patience_s + messages.ALIKE_S * settles)
                    self.pool.send_all(messages.Stop(int(signum), grace_s, patience_s, settles))
                case ShowStacks():
                    native = self.job.record
                    self.stacks.request(
                        self.links, self._show_stacks, all_threads=True, native=native
                    )
                case Note(text):
                    self.console.note(text)

    def _read_signals(self) -> None:
        for signum in self.front.read_signals():
            if signum in ENDING:
                self._interrupt(signum)
            elif signum in FORWARDED:
                self.pool.send_all(messages.Forward(signum))
            elif signum == signal.SIGQUIT and self._plan is not None:
                self.request_stacks()
            elif signum == signal.SIGTSTP:
                self.console.remove_rows()
                os.kill(os.getpid(), signal.SIGSTOP)
            elif signum == signal.SIGCHLD:
                self.pool.reap()
            else:
                self._handle_own_signal(signal.Signals(signum))

    def _interrupt(self, signum: int) -> None:
        """End the job for a signal from the user or a scheduler."""
        self.perform(
            self.policy.on_interrupt(
                signum,
                time.monotonic(),
                nothing_left=self.pool.nothing_left,
                caught=self.state.jax_catches_sigterm,
            )
        )

    def _handle_own_signal(self, signum: signal.Signals) -> None:
        """Handle a signal that is not passed on to the ranks."""
        if (feature := features.SIGNALS.get(signum.name)) is not None:
            self._load_part(feature)
        for part in self._parts.values():
            part.on_signal(signum)
        if signum == signal.SIGCONT:
            self.state.record_resume(time.monotonic())
            self.console.redraw_rows()
        elif signum == signal.SIGWINCH:
            self.console.redraw_status()

    def _on_events_failure(self, error: OSError | None) -> None:
        """Print that events cannot be written; do nothing if only their reader has left."""
        if error is not None and error.errno != errno.EPIPE:
            self.console.say(
                f"--events {self.job.events}: {error.strerror}: no more events are written"
            )

    def _on_reader_loss(self, error: OSError | None) -> None:
        """End the job because stdout has no reader, unless a signal explains that first.

        A closed terminal counts as SIGHUP: if the launcher ignores SIGHUP, the job continues.
        """
        if not self.console.on_terminal:
            stop = stop_reasons.reader_gone(error)
        elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # it comes with a closed terminal
            stop = stop_reasons.interrupted(signal.SIGHUP)
        else:
            return
        self.perform(self.policy.record_unexplained_stop(stop, time.monotonic()))

    def request_stacks(self) -> None:
        """Show the user the stacks of all ranks."""
        self.stacks.request(self.links, self._show_stacks)

    def _show_stacks(self, stacks: list["Stack"]) -> None:
        from mcjax_launch.diagnosis.rules import list_limit_lines
        from mcjax_launch.diagnosis.snapshots import format_stacks
        from mcjax_launch.diagnosis.view import View

        lines = format_stacks(stacks) if stacks else []
        self.state.stacks = tuple(lines)
        if not self.policy.wants_stacks:
            now = time.monotonic()
            view = View(self.state, now)
            lines += list_limit_lines(view)
            if self._explanations is not None:
                lines += self._explanations.explain_stacks(view)
        elif self.state.waits is not None:
            from mcjax_launch.diagnosis.findings.waits import find_last_wait

            self.state.waits.by_stacks = find_last_wait(self.state, stacks)
        self.events.report("stacks", lines=lines)
        if lines and not self.debuggers.show(lines):
            self.console.say("\n".join(lines))
        self.perform(self.policy.on_stacks_shown())

    # --- time ---

    def _serve(self, visitors: "Visitors") -> None:
        """Show a detached job's progress to its visitors."""
        from mcjax_launch.kernel.launcher.progress import Progress

        visitors.serve(lambda line: Progress(line, self.startup, self.state), self.request_stacks)
        self._timers.append(visitors)

    def _begin_status(self, line: "StatusLine") -> None:
        from mcjax_launch.kernel.launcher.progress import (
            Progress,  # as only a start that takes long needs
        )

        self._timers.append(Progress(line, self.startup, self.state))

    def _run_turn(self) -> None:
        self.front.loop.run_once(self._timers, self.state.record_resume)
        now = time.monotonic()
        if self.pool.nothing_left:
            self.policy.record_nothing_left(now)
        if not self.console.has_room:  # a slow reader is no stall
            self.state.activity.active_at = now

    def _on_limit(self, stop: StopReason) -> None:
        self.perform(self.policy.on_limit(stop))

    def _give_credit(self) -> None:
        if self.console.has_room:
            for link in self.links:
                link.give_credit()

    def _is_over(self) -> bool:
        return self.policy.gives_up(time.monotonic()) or self.pool.over

    def _account_for_all(self) -> None:
        """End the job as host lost if agents are gone without reporting all ranks' ends."""
        untold = [run.host for run in self.state.running]
        if self._plan is None:
            untold = [link.host.name for link in self.links]
        if untold and not self.policy.ending:
            why = "its agent ended without reporting how its ranks ended"
            self.stop(stop_reasons.host_lost(untold[0], why))

    def _conclude(self, lost_output: bool) -> Summary:
        """Print remaining output and the summary; return the summary."""
        is_brief = self.state.stop is not None and self.state.stop.saved
        self.console.finish_ranks(mentions=not is_brief)
        if self._explanations is not None:
            self._explanations.on_run_end(time.monotonic())
        seconds = time.monotonic() - self.state.began_at
        summary = summarize(self.state, final=self.policy.final, seconds=seconds)
        if lost_output:
            self.console.say("output lost: the reader stopped reading")
        for line in self.state.failed_hints:
            self.console.show_detail(line)
        if summary.lines:
            if lines := self._select_unprinted_lines(summary):
                self.console.show_summary(lines, alarm=not self.policy.interrupts)
        else:
            say = self.console.note if seconds >= LONG_S else self.console.show_detail
            say(f"the job ran for {format_duration(seconds)}")
            if lines := find_warnings(self.state):
                self.console.say("\n".join(lines))
            if self.state.log_dir and not self.job.record:
                self.console.note(f"logs: {self.state.log_dir}")
        if self.state.diverged and self.state.log_dir:
            from mcjax_launch.report import files

            folder = os.path.join(self.state.log_dir, "")
            for line in files.save_programs(self.state.programs, folder):
                self.console.say(line)
        for part in self._parts.values():
            part.on_summary(summary, last=self._last or summary.final)
        self._write_all()
        return summary

    def _write_all(self) -> None:
        """Wait until all queued output is written or the policy gives up."""
        while not self.console.empty and not self.policy.gives_up(time.monotonic()):
            self._run_turn()

    def _select_unprinted_lines(self, summary: Summary) -> Sequence[str]:
        """Return the summary's lines without text that has just been printed."""
        if isinstance(summary.ending, JobStopped) and summary.ending.stop.saved:
            return summary.lines[1:]
        alike = summary.ending.alike if isinstance(summary.ending, RankFailed) else ()
        # GitHub's annotation quotes it.
        said = self.job.on_github or any(self.console.is_on_screen(run.process_id) for run in alike)
        said = said or (self.state.survives and not self.state.ended_all)
        return summary.without_quote if said else summary.lines


def _list_own_parts(job: Job) -> Sequence[str]:
    """Return the names of the kernel's own parts to load before the ranks start."""
    return () if job.on_rank_failure == "stop" else (_SURVIVORS,)


def _make_staged_paths(job: Job) -> "StagedPaths":
    from mcjax_launch.kernel.transport.staged_paths import StagedPaths  # only --sync needs it

    return StagedPaths(job.sync, os.getcwd())


def _gave_up_waiting(run: RankRun) -> bool:
    from mcjax_launch.diagnosis.findings.collectives import (
        gave_up_waiting,
    )  # as only a victim needs

    return gave_up_waiting(run)


def _find_requested_devices(job: Job) -> DevicesAsked | None:
    if job.cpu_devices is not None:
        return DevicesAsked(f"-d {job.cpu_devices}", job.cpu_devices, "CPU device")
    if isinstance(each := job.gpus_per_process, int):
        return DevicesAsked(f"--gpus-per-process {each}", each, "GPU")
    return None


def _is_signalled(run: RankRun) -> bool:
    """Return whether a rank was ended by a signal that ends jobs."""
    return run.exit_status in map(exit_status.compute_signal_status, ENDING)


def _is_early(run: RankRun) -> bool:
    """Return whether a Python program has failed before joining: other ranks may fail alike."""
    hooked = run.process.hooked and (run.status or 0) > 0
    return hooked and run.membership.joined_at is None


def _save_bug_report(host: Host, error: str, traceback: str) -> str:
    """Save an agent's traceback; return a line that reports the bug and the saved file."""
    where = "" if host.is_local else f"host {host.name}: "
    return f"{where}internal error in the agent: {error}; please report {save_traceback(traceback)}"

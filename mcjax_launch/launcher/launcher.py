"""Controller of an attempt of a job, in the order of the attempt's life.

Messages of agents, signals and deadlines lead from each phase to the next:

    greet    agents are started on all hosts, and greet           transport/pool.py
    prepare  each host says what it has, or refuses               startup.py
    plan     every rank has a host, a command and variables       startup.py, job/plan.py
    run      ranks are started, and report until they end         rank_start.py, rank_reports.py
    end      there is a reason to stop: ranks are ended           stop_policy.py
    gone     no process is left: the summary is printed           conclusion.py
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mcjax_launch.console.console import Console
from mcjax_launch.errors import LaunchError, save_traceback
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan
from mcjax_launch.journal import facts, stop_reasons
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.stop_reasons import StopReason
from mcjax_launch.journal.summary import Summary
from mcjax_launch.journal.tails import Tails
from mcjax_launch.launcher.conclusion import conclude
from mcjax_launch.launcher.fact_display import FactDisplay, StackDisplay
from mcjax_launch.launcher.front import Front
from mcjax_launch.launcher.part import DebuggerDisplay, LauncherParts
from mcjax_launch.launcher.rank_reports import RankReports
from mcjax_launch.launcher.rank_start import order_ranks, start_ranks
from mcjax_launch.launcher.stack_requests import StackRequests
from mcjax_launch.launcher.startup import Startup
from mcjax_launch.launcher.stop_policy import (
    Effects,
    Note,
    SetReason,
    ShowStacks,
    StopPolicy,
    StopRanks,
)
from mcjax_launch.launcher.time_limits import TimeLimits
from mcjax_launch.launcher.timers import OneShotTimer, TimerAction
from mcjax_launch.launcher.user_signals import handle_signals
from mcjax_launch.machine.loop import READ
from mcjax_launch.options import features as declared
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.transport.pool import AgentPool, Failure
from mcjax_launch.transport.remote_commands import Transport
from mcjax_launch.wire import exit_status, messages
from mcjax_launch.wire.codec import Message
from mcjax_launch.wire.frames import Data, Raw

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


if TYPE_CHECKING:
    from mcjax_launch.console.bottom import StatusLine
    from mcjax_launch.machine.loop import Timer
    from mcjax_launch.transport.staged_paths import StagedPaths

    Act = Callable[[AgentConnection, Any], object]


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
        self.job = job
        self.front = front
        self.state = state
        self._plan: Plan | None = None
        self.restart, self._last = restart, last
        self.kept: dict[str, object] = {} if kept is None else kept
        self.policy = StopPolicy(
            job.get_grace_s, shows_stacks=front.shows_stacks, again=front.again
        )
        self._paths = _make_staged_paths(job) if job.sync else None
        rewrite = None if self._paths is None else self._paths.in_bytes
        self.events, self.journal = front.events, front.journal
        self.events.attend(state, self._give_credit, self._on_events_failure)
        self.journal.begin_attempt(state)
        state.tails = Tails(job.record or self.events.is_read, rewrite)
        self.console = self._make_console(rewrite)
        window = min(_MOST_WINDOW, _WINDOW_OF_ALL // len(hosts))
        trace = self.console.say if "frames" in os.environ.get(_DEBUG, "") else None
        self.pool = AgentPool(hosts, transport, front.loop, window, self, trace)
        self.startup = Startup(
            job, hosts, restart, self, self.pool, self.console, front.call_after_release
        )
        self.journal.add_to_attempt(self.console)
        self.journal.add_to_attempt(FactDisplay(self.console, state))
        self.stacks = StackRequests()
        self.debuggers = DebuggerDisplay()
        self._timers: list[Timer] = [self.console, self.pool, self.startup, self.stacks]
        self._timers.append(TimerAction(self.policy, self.perform))
        self.parts = LauncherParts(self, self._timers)
        if first := declared.find_first(self.job):
            self.startup.first_step = self.parts.load(first).begin
        self._stack_display = StackDisplay(self)
        self._acts = self._make_acts()

    def _make_acts(self) -> "dict[type, Act]":
        """Return the handler of each kind of frame; all others are messages of features."""
        startup, reports = self.startup, RankReports(self)
        return {
            # greet, prepare
            messages.Loading: lambda link, loading: startup.on_loading(link),
            messages.Greeting: startup.on_greeting,
            messages.HostFacts: startup.on_host_facts,
            messages.Lacks: startup.on_lacks,
            messages.CoordinatorTried: startup.on_coordinator_tried,
            messages.Refused: startup.on_refusal,
            # run
            messages.Started: reports.on_start,
            Data: reports.on_output,
            messages.Usage: reports.on_usage,
            messages.FromHook: reports.on_hook_message,
            messages.Exited: reports.on_exit,
            messages.Stacks: self.stacks.record_stacks,
            messages.StacksComplete: self.stacks.record_stacks,
            # end, gone
            messages.Ending: self._on_agent_stop,
            messages.InternalError: self._on_agent_bug,
            messages.NotYetGone: self._on_slow_end,
            messages.Bye: self._on_bye,
        }

    def _make_console(self, rewrite: Callable[[bytes], bytes] | None) -> Console:
        targets = self.front.open_outputs(self._give_credit)
        for target in targets:
            target.in_log = self.job.on_github
        console = Console(
            self.job,
            targets,
            self._on_reader_loss,
            self._give_credit,
            rewrite,
            self.front.verbose_option,
            self.journal,
            self.events,
        )
        console.is_stalled = lambda: any(link.is_stalled for link in self.links)
        return console

    # --- the attempt from its beginning to its end ---

    def report_beginning(self, hosts: Sequence[Host], attempt: int) -> None:
        """Let it be known that this attempt begins; attempt 0 is the beginning of the run."""
        job, job_id = self.job, self.startup.job_id
        names = [host.name for host in hosts]
        if attempt == 0:
            self.journal.append(facts.JobBegan(job_id, job.program, job.num_processes, names))
        else:
            self.journal.append(facts.Restarted(attempt, job_id, names))

    def run(self) -> Summary:
        """Run the attempt, print its summary, and return it.

        Raises:
            LaunchError: the attempt could not be started; no process of it is left.

        """
        self._attend_to_user()
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
            self._release_all()
        self.front.leave_if_held()
        if self.policy.error is not None:
            self.console.finish_ranks()  # some ranks may have begun
            self._write_all()
            raise self.policy.error
        summary = conclude(self, lost_output=lost_output)
        self._write_all()
        return summary

    def _attend_to_user(self) -> None:
        """Begin to handle signals and saves, and prepare what the user will see."""
        self.front.loop.watch(self.front.signals.fd, READ, lambda _: handle_signals(self))
        if (watcher := self.front.watcher) is not None:
            watcher.say, watcher.note = self.console.say, self.console.note
            watcher.on_save = self.stop
        self.front.call_after_release(self._begin_visibly)

    def _begin_visibly(self) -> None:
        """Begin what the user sees and measures; --watch begins the rest of a run earlier."""
        self.state.began_at = time.monotonic()
        if (line := self.console.status_line) is not None:
            due = time.monotonic() + _BEGINS_S
            self._timers.append(OneShotTimer(due, lambda: self._timers.append(self._show_on(line))))

    def _show_on(self, line: "StatusLine") -> "Timer":
        """Return a timer that shows the job's progress on a line."""
        from mcjax_launch.launcher.progress import Progress  # a short job needs none

        return Progress(line, self.startup, self.state)

    def _run_turn(self) -> None:
        self.front.loop.run_once(self._timers, self._on_resume)
        now = time.monotonic()
        if self.pool.nothing_left:
            self.policy.record_nothing_left(now)
        if not self.console.has_room:  # a slow reader is no stall
            self.state.activity.active_at = now

    def _on_resume(self, _: float) -> None:
        self.journal.append(facts.Resumed())

    def _is_over(self) -> bool:
        return self.policy.gives_up(time.monotonic()) or self.pool.over

    @property
    def links(self) -> list[AgentConnection]:
        """Connections to the agents."""
        return self.pool.links

    def on_frame(self, link: AgentConnection, frame: Message | Data | Raw) -> None:
        """Handle a frame from an agent, in any phase."""
        if self._paths is not None and isinstance(frame, Message):
            frame = self._paths.with_originals(frame)
        feature = "" if isinstance(frame, Data) else frame.feature
        if isinstance(frame, messages.FromHook):
            feature = frame.message.feature
        if not feature:
            if (act := self._acts.get(type(frame))) is not None:  # else the pool has handled it
                act(link, frame)
        elif (part := self.parts.find(feature)) is not None:
            part.on_message(link, frame, time.monotonic())  # type: ignore[arg-type]  # has a feature

    # --- plan: every host is ready ---

    def on_hosts_ready(self, plan: Plan) -> None:
        """Start the ranks, once the run may begin."""
        if is_held := self.front.is_held:
            order_ranks(self, plan, waits=True)
        self.front.call_after_release(lambda: self._start_ranks(plan, is_ordered=is_held))

    def _start_ranks(self, plan: Plan, *, is_ordered: bool) -> None:
        """Start the ranks, unless the job ends before any rank was started."""
        if self.policy.ending:
            return
        self._plan = plan
        limits = TimeLimits(self.job, self.state, time.monotonic())
        self._timers.append(
            TimerAction(limits, lambda stop: self.perform(self.policy.on_limit(stop)))
        )
        self.policy.on_ranks_start()
        start_ranks(self, plan, is_ordered=is_ordered)
        if self.front.watcher is not None:
            self.front.watcher.report(started=True)

    def on_start_failure(self, error: LaunchError) -> None:
        """End the attempt, because a host cannot run its ranks."""
        self.perform(self.policy.on_start_failure(error))

    # --- run ---

    def request_stacks(self) -> None:
        """Show the user the stacks of all ranks."""
        self._stack_display.show()

    def _give_credit(self) -> None:
        if self.console.has_room:
            for link in self.links:
                link.give_credit()

    # --- reasons to end that are no rank's ---

    def on_host_failure(self, failure: Failure) -> None:
        """Handle that no agent could be started on a host."""
        if failure.traceback:
            error = failure.traceback.strip().rpartition("\n")[2]
            bug = _save_bug_report(failure.host, error, failure.traceback)
            self.on_start_failure(LaunchError(bug, exit_status.INTERNAL_ERROR))
        elif failure.stopped:
            self._end_unexplained(stop_reasons.agent_stopped(failure.host.name, failure.reason))
        else:
            self.startup.record_failure(failure)

    def on_agent_loss(self, link: AgentConnection, why: str) -> None:
        """Handle the loss of an agent, which counts as the loss of its running ranks."""
        self.debuggers.on_agent_loss(link, time.monotonic())
        if self.policy.error is not None:
            return
        ranks = () if self._plan is None else self._plan.ranks
        runs = [self.state.ranks[rank.process_id] for rank in ranks if rank.host is link.host]
        lost = [run for run in runs if not (self.state.survives and run.is_gone)]
        self.journal.append(facts.RanksLost([run.process_id for run in lost]))
        stop = stop_reasons.host_lost(link.host.name, why)
        if not any(part.on_host_loss(stop, link.host, lost) for part in self.parts):
            self.stop(stop)

    def _on_agent_stop(self, link: AgentConnection, message: messages.Ending) -> None:
        why = f"its agent was stopped by {message.reason}"
        self._end_unexplained(stop_reasons.agent_stopped(link.host.name, why))

    def _on_agent_bug(self, link: AgentConnection, bug: messages.InternalError) -> None:
        report = _save_bug_report(link.host, bug.error, bug.traceback)
        self.stop(stop_reasons.internal_error(report))

    def _on_reader_loss(self, error: OSError | None) -> None:
        """End the job because stdout has no reader, unless a signal explains that first.

        A closed terminal counts as SIGHUP: if the launcher ignores SIGHUP, the job continues.
        """
        if not self.console.on_terminal:
            self._end_unexplained(stop_reasons.reader_gone(error))
        elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # it comes with a closed terminal
            self._end_unexplained(stop_reasons.interrupted(signal.SIGHUP))

    def _on_events_failure(self, error: OSError | None) -> None:
        """Print that events cannot be written; do nothing if only their reader has left."""
        if error is not None and error.errno != errno.EPIPE:
            self.console.say(
                f"--events {self.job.events}: {error.strerror}: no more events are written"
            )

    # --- end: the stop policy decides ---

    def stop(self, stop: StopReason) -> None:
        """Stop the job for a reason; the policy decides how."""
        self.perform(self.policy.end_job(stop))

    def _end_unexplained(self, stop: StopReason) -> None:
        """Stop the job for a reason that a signal may soon explain better."""
        self.perform(self.policy.record_unexplained_stop(stop, time.monotonic()))

    def perform(self, effects: Effects) -> None:
        """Carry out the effects that the policy has decided on, in their order."""
        for effect in effects:
            match effect:
                case SetReason(stop):
                    self.journal.append(stop)
                case StopRanks():
                    self._stop_ranks(effect)
                case ShowStacks():
                    self._stack_display.show(before_stop=True)
                case Note(text):
                    self.console.note(text)

    def _stop_ranks(self, order: StopRanks) -> None:
        self.startup.stop()
        for part in self.parts:
            part.on_stop(time.monotonic())
        self.console.fold_victims(own_term=not order.by_user)
        is_last = self._last or self.policy.final
        patience_s = _PATIENCE_S if is_last and self.front.watcher is None else FREED_S
        self.pool.stop(order.grace_s + patience_s + messages.ALIKE_S * order.settles)
        self.pool.send_all(
            messages.Stop(int(order.signum), order.grace_s, patience_s, order.settles)
        )

    def _on_slow_end(self, link: AgentConnection, message: messages.NotYetGone) -> None:
        self.console.note(
            f"{link.host.name}: waiting up to {FREED_S:g} s for killed processes to end, "
            f"before another attempt: {'; '.join(message.processes)}"
        )

    # --- gone ---

    def _on_bye(self, link: AgentConnection, bye: messages.Bye) -> None:
        """Handle the last message of an agent, on whose host no process of the job is left."""
        self.journal.append(facts.HostGone(link.host.name, bye))
        if bye.leftovers:
            self.parts.load_explanations()  # at the end they say what outlived its rank
        self.debuggers.on_agent_loss(link, time.monotonic())

    def _account_for_all(self) -> None:
        """End the job as host lost if agents are gone without reporting all ranks' ends."""
        untold = [run.host for run in self.state.running]
        if self._plan is None:
            untold = [link.host.name for link in self.links]
        if untold and not self.policy.ending:
            why = "its agent ended without reporting how its ranks ended"
            self.stop(stop_reasons.host_lost(untold[0], why))

    def _release_all(self) -> None:
        """Close parts and connections."""
        for part in self.parts:
            part.close(time.monotonic())
        limit_s = _AGENT_END_S if self.policy.interrupts < 3 else 1
        self.pool.hang_up(limit_s)
        for rank in self.state.ranks:
            self.state.keep_output(rank, last=True)

    def _write_all(self) -> None:
        """Wait until all queued output is written or the policy gives up."""
        while not self.console.empty and not self.policy.gives_up(time.monotonic()):
            self._run_turn()


def _make_staged_paths(job: Job) -> "StagedPaths":
    from mcjax_launch.transport.staged_paths import StagedPaths  # only --sync needs it

    return StagedPaths(job.sync, os.getcwd())


def _save_bug_report(host: Host, error: str, traceback: str) -> str:
    """Save an agent's traceback; return a line that reports the bug and the saved file."""
    where = "" if host.is_local else f"host {host.name}: "
    return f"{where}internal error in the agent: {error}; please report {save_traceback(traceback)}"

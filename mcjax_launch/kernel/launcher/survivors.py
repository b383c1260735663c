"""Part of the launcher that carries out the survival policy: reports and restarts."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.summary import describe_rank_end, format_failure_report
from mcjax_launch.diagnosis.verdict import determine_verdict
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.launcher.agent_orders import add_restart_number, make_restart_order
from mcjax_launch.kernel.launcher.part import JobLauncher, LauncherPart, compute_pause_s
from mcjax_launch.kernel.launcher.stop_policy import RankFailure
from mcjax_launch.kernel.launcher.survival import (
    BeginAgain,
    Effect,
    EndAll,
    FailedRank,
    GoOn,
    SurvivalPolicy,
)
from mcjax_launch.kernel.wire import messages
from mcjax_launch.kernel.wire.exit_status import HOST_LOST
from mcjax_launch.kernel.wire.hook_messages import Joining
from mcjax_launch.ranks import format_ranks
from mcjax_launch.runs import stop_reasons
from mcjax_launch.runs.rank_run import RankRun, Stage, Verdict
from mcjax_launch.runs.stop_reasons import StopReason

if TYPE_CHECKING:
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.kernel.launcher.startup import Startup
    from mcjax_launch.kernel.transport.connection import AgentConnection
    from mcjax_launch.kernel.transport.pool import AgentPool
    from mcjax_launch.kernel.wire.codec import Message
    from mcjax_launch.kernel.wire.frames import Data, Raw


# Seconds: what a rank prints about its failure may arrive after its hook's report.
_LAST_WORDS_S = 0.3


class Survivors(LauncherPart):
    """Part that lets ranks go on, or restarts ranks, after failures (--on-rank-failure)."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._startup = launcher.startup
        self._state = launcher.state
        self._state.survives = True
        self._ranks: dict[int, Rank] = {}
        self._policy = SurvivalPolicy(launcher.job.on_rank_failure)
        self._absent: list[int] = []  # the ranks that failed before they called initialize()
        self._rejoining: list[Rejoining] = []
        # By rank: what follows an unreported failure, and when to report it at the latest.
        self._untold: dict[int, tuple[str, float]] = {}

    def on_begin(self, plan: Plan, now: float) -> None:
        """Record the ranks of the plan, each with its host."""
        self._ranks = {rank.process_id: rank for rank in plan.ranks}

    def on_rank_message(self, message: messages.FromHook | messages.Exited, now: float) -> None:
        """Handle the ends of ranks, and calls of initialize()."""
        if isinstance(message, messages.Exited):
            self._on_rank_end(message.rank)
        elif isinstance(message.message, Joining):
            self._on_initialize_call()

    def on_rank_failure(self, run: RankRun) -> bool:
        """Apply the policy to a rank's failure; return whether the job goes on."""
        if self.launcher.policy.ending or not run.failed or run.after_signal:
            return False
        self._perform(self._policy.decide_on_failure(self._make_failed_rank(run)))
        if run.status is not None:  # else it may still print
            self._report(run)
        return self._policy.goes_on(run.process_id)

    def on_host_loss(self, stop: StopReason, host: Host, lost: Sequence[RankRun]) -> bool:
        """Apply the policy to the loss of a host; return whether the job goes on."""
        state = self._state
        if self.launcher.policy.ending:
            return False
        effects = [self._policy.decide_on_failure(self._make_failed_rank(run)) for run in lost]
        ends = [effect for effect in effects if isinstance(effect, EndAll)]
        if ends:
            state.ended_all = ends[0].why
            return False
        for run in lost:
            run.order = state.increment_order()
            run.process.restarts = self._policy.restarts
        there = [rank for rank, planned in self._ranks.items() if planned.host is host]
        ranks = [run.process_id for run in lost] + self._policy.cancel_restarts(there)
        if not ranks:
            return True
        what_follows = f"continuing without {format_ranks(ranks)} (--on-rank-failure)"
        if self._policy.restarts:
            what_follows = self._rejoin(stop, host, sorted(ranks), effects)
        else:
            state.host_lost = state.host_lost or stop
        self.launcher.console.show_summary([stop.message, what_follows], alarm=True)
        return True

    def _rejoin(
        self, stop: StopReason, host: Host, ranks: Sequence[int], effects: Sequence[Effect | None]
    ) -> str:
        """Schedule the restart of a lost host's ranks; return a line that says so."""

        def give_up(why: str) -> None:
            self._state.ended_all = why
            self.launcher.stop(stop)

        pauses = [effect.pause_s for effect in effects if isinstance(effect, BeginAgain)]
        pause_s = max(pauses, default=0.0)
        rejoining = Rejoining(
            host,
            ranks,
            time.monotonic() + pause_s,
            startup=self._startup,
            pool=self.launcher.pool,
            say=self.launcher.console.note,
            begin=self._begin_on,
            give_up=give_up,
        )
        self._rejoining.append(rejoining)
        return f"restarting {format_ranks(ranks)} in {pause_s:g} s"

    def _begin_on(self, rejoining: Rejoining, plan: Plan, link: AgentConnection) -> None:
        """Restart the ranks of a lost host, whose new agent is ready."""
        self._rejoining.remove(rejoining)
        again = []
        for rank in plan.group_by_host()[link.host]:
            number = rank.process_id
            if number in rejoining.ranks:
                self._ranks[number] = rank
                self._begin_restart(number, time.monotonic())
                again.append(add_restart_number(rank, self._policy.record_restart(number)))
        self.launcher.start_again(plan, link, again)

    @property
    def awaits_host(self) -> bool:
        """True if a lost host is about to be connected again."""
        return bool(self._rejoining) and not self.launcher.policy.ending

    def _on_rank_end(self, rank: int) -> None:
        """Handle the end of a rank's process."""
        self._report(self._state.ranks[rank])
        self._policy.record_end(rank, time.monotonic())
        self._stop_if_unserved()

    def _on_initialize_call(self) -> None:
        """Handle a rank's call of initialize(); end the job if other ranks cannot complete it."""
        ending = self.launcher.policy.ending
        if not ending and (why := self._policy.judge_call(self._absent)):
            self._perform(EndAll(why))
            stop = self.launcher.policy.on_rank_end(RankFailure(self._absent[0]))
            self.launcher.perform(stop)
        self._stop_if_unserved()

    def _stop_if_unserved(self) -> None:
        """End the job if a restarted rank waits in initialize() for a process 0 that has ended."""
        if self.launcher.policy.ending or not self._unserved:
            return
        for run in self._state.ranks.values():
            if run.past and run.stage is Stage.JOINING:
                last = run.past[-1]
                status = HOST_LOST if last.status is None else last.exit_status
                self.launcher.stop(stop_reasons.unserved(run.process_id, status))
                return

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time of the next restart, connection or report; None for none."""
        if self.launcher.policy.ending:
            return None
        tell_at = (at for _, at in self._untold.values())
        connect_at = (rejoining.due for rejoining in self._rejoining)
        times = (self._policy.deadline, min(tell_at, default=None), *connect_at)
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> None:
        """Restart ranks and report failures, if the deadline has come."""
        if self.launcher.policy.ending:
            return
        for rank in [rank for rank, (_, at) in self._untold.items() if now >= at]:
            self._report(self._state.ranks[rank])
        for rank, number in self._policy.expire(now).items():
            self._start(rank, number, now)
        for rejoining in list(self._rejoining):
            if rejoining.due is not None and now >= rejoining.due:
                rejoining.connect()

    def _make_failed_rank(self, run: RankRun) -> FailedRank:
        member, call = run.membership, run.membership.call
        joined = call is not None and not member.left
        if call is None and run.process_id not in self._absent:
            self._absent.append(run.process_id)
        others = (other for other in self._state.ranks.values() if other is not run)
        return FailedRank(
            run.process_id,
            joined=joined,
            runs_service=joined and call is not None and call.process_id == 0,
            recoverable=call is not None and call.recoverable,
            awaited=any(other.stage is Stage.JOINING for other in others),
            unserved=self._unserved and any(life.membership.call for life in run.all_runs),
        )

    @property
    def _unserved(self) -> bool:
        """True if process 0, which runs JAX's coordination service, has ended or left."""
        first = self._state.find_rank(0)
        return first is not None and (first.is_gone or first.membership.left)

    def _perform(self, effect: Effect | None) -> None:
        state, now = self._state, time.monotonic()
        match effect:
            case GoOn(rank):
                text = f"continuing without rank {rank} (--on-rank-failure)"
                self._untold[rank] = text, now + _LAST_WORDS_S
            case BeginAgain(rank, pause_s, number, most):
                state.ranks[rank].process.restarts = True
                of = f"({number} of {most})"
                text = f"restarting rank {rank} in {pause_s:g} s {of}"
                self._untold[rank] = text, now + _LAST_WORDS_S
            case EndAll(why):
                state.ended_all = why
                state.activity.failed_at = now

    def _report(self, run: RankRun) -> None:
        """Report why a rank has failed, unless that has been reported."""
        console, rank = self.launcher.console, run.process_id
        what_follows, _ = self._untold.pop(rank, ("", 0.0))
        if not what_follows:
            return
        console.stop_holding(rank)
        self._state.keep_output(rank)
        if determine_verdict(run) is Verdict.VICTIM:
            lines: Sequence[str] = [f"rank {rank} {describe_rank_end(run)}"]
        else:
            lines = format_failure_report(self._state, run, quoted=not console.is_on_screen(rank))
        console.show_summary([*lines, what_follows], alarm=True)

    def _start(self, rank: int, number: int, now: float) -> None:
        self._begin_restart(rank, now)
        order = self.launcher.add_variables(self._ranks[rank])
        for link in self.launcher.links:
            if link.host is order.host and not link.ended:
                link.send(make_restart_order(add_restart_number(order, number)))

    def _begin_restart(self, rank: int, now: float) -> None:
        self.launcher.console.restart_rank(rank)
        run = self._state.restart_rank(rank, now)
        self.launcher.events.report_restart(rank, len(run.past), self._state.job_id, [run.host])
        self.launcher.console.set_verdict(rank, run.verdict, run.failure)


PART = Survivors

# --- a lost host's ranks, started again there ---

# Tries to connect to a lost host.
_TRIES = 3
_ELSEWHERE = "on other hosts only the whole job is restarted (--max-restarts, --min-hosts)"


class Rejoining:
    """Lost host whose ranks are to be restarted, until they are.

    Args:
        lost: the lost host.
        ranks: numbers of its ranks to restart.
        due: time of the first attempt to connect.
        startup: startup of the job, which prepares the host.
        pool: agents' pool, which connects to the host.
        say: function that prints a line.
        begin: function called with the plan and the agent's link when the host is ready.
        give_up: function called with the reason after too many tries.

    Attributes:
        due: time of the next attempt to connect; None while connecting.

    """

    def __init__(
        self,
        lost: Host,
        ranks: Collection[int],
        due: float,
        *,
        startup: Startup,
        pool: AgentPool,
        say: Callable[[str], object],
        begin: Callable[[Rejoining, Plan, AgentConnection], object],
        give_up: Callable[[str], object],
    ) -> None:
        self.lost = lost
        self.ranks = ranks
        self.due: float | None = due
        self._startup = startup
        self._pool = pool
        self._say = say
        self._begin = begin
        self._give_up = give_up
        self._tries = 0

    def connect(self) -> None:
        """Connect to the host; called when `due` is reached."""
        self.due = None
        self._tries += 1
        self._startup.rejoining[self.lost] = self
        try:
            self._pool.connect_again(self.lost)
        except LaunchError as error:
            self.on_failure(str(error))

    def on_message(self, link: AgentConnection, message: Message | Data | Raw) -> None:
        """Handle a message from the host's agent."""
        match message:
            case messages.Greeting(version) if version == messages.VERSION:
                self._startup.ask_again(link)
            case messages.HostFacts():
                link.be_patient(0)
                try:
                    plan = self._startup.update_plan(self.lost, message)
                except LaunchError as error:
                    self._on_refusal(link, str(error))
                    return
                del self._startup.rejoining[self.lost]
                self._begin(self, plan, link)
            case messages.Refused(reason):
                self._on_refusal(link, reason)
            case messages.Greeting():
                self._on_refusal(link, "its agent has another version")

    def _on_refusal(self, link: AgentConnection, why: str) -> None:
        link.send(messages.Stop(int(signal.SIGKILL), 0))
        self.on_failure(why)

    def on_failure(self, why: str) -> None:
        """Schedule another attempt, or give up after too many; `why`: the reason of the failure."""
        name, ranks = self.lost.name, format_ranks(sorted(self.ranks))
        del self._startup.rejoining[self.lost]
        if self._tries >= _TRIES:
            self._give_up(f"host {name}: {why}; {_ELSEWHERE}")
            return
        pause = compute_pause_s(self._tries)
        self.due = time.monotonic() + pause
        self._say(f"host {name}: {why}; starting {ranks} there in {pause:g} s")

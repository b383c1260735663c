"""The controller: agents' frames in, console and verdict out, and the words that end a job."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcjax_launch.console.console import Console
from mcjax_launch.console.prefix import common_folder, labels
from mcjax_launch.console.style import Style
from mcjax_launch.diagnosis import root_cause
from mcjax_launch.diagnosis.victim import is_victim
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan
from mcjax_launch.launcher.signals import ENDING, PASSED_ON
from mcjax_launch.launcher.stack_requests import Dumps
from mcjax_launch.launcher.startup import Preparation, orders
from mcjax_launch.protocol import exit_status, frames
from mcjax_launch.protocol.loop import READ, Loop, Signals
from mcjax_launch.run.state import History, Stop
from mcjax_launch.transport import client
from mcjax_launch.transport.connection import Link
from mcjax_launch.transport.pool import Connector, Failure
from mcjax_launch.watchdog.absent_ranks import Missing
from mcjax_launch.watchdog.limits import Limits, look_s

# Less than the pipe from the agent holds, so that the agent seldom has to wait for room.
_MOST_WINDOW = 3 << 18
_WINDOW_OF_ALL = 16 << 20
_READER_MOST_S = 5.0
_AGENT_END_S = 10.0
# Ctrl-C ends a whole pipeline, and scancel a whole job: what it does to our reader or our agents
# may be seen here before the signal that is for us.
_SIGNAL_S = 0.3


class Launcher:
    """Runs one job once.

    Args:
        job: what to run.
        hosts: where; all of them get ranks.
        early: transports that have been started already.
        via: how to reach the others: "ssh" or a template.
        style: how the console looks.
        log_dir: where each rank's whole output goes, if anywhere; may hold placeholders.
        loop: to wait in.
        signals: the launcher's own, see `mcjax_launch.signals`.
        history: where to keep what happens.
        restart: how many times the job has been started before.

    Attributes:
        lost: hosts that could not be reached, or were lost.

    Raises:
        LaunchError: there is nothing to be sent where --sync says, or too few slots.

    """

    def __init__(
        self,
        job: Job,
        hosts: Sequence[Host],
        early: Mapping[Host, client.Pipes],
        via: str,
        style: Style,
        *,
        log_dir: str | None,
        loop: Loop,
        signals: Signals,
        history: History,
        restart: int = 0,
    ) -> None:
        self.lost: set[Host] = set()
        self._job = job
        self._log_dir = log_dir
        self._loop = loop
        self._signals = signals
        self._restart = restart
        self._console = Console(style, self._loop, self._reader_gone, self._give_credit, job.record)
        self._history = history
        self._preparation = Preparation(job, hosts, self._start, self._fail, restart)
        self._connector = Connector(
            hosts,
            lambda host: client.argv(host, via, job.python, job.python_given),
            early,
            self._loop,
            min(_MOST_WINDOW, _WINDOW_OF_ALL // len(hosts)),
            self._handle,
            self._lose,
            self._unreachable,
        )
        self._dumps = Dumps()
        self._missing = Missing()
        self._told: dict[int, Callable[[Link, int, dict[str, Any]], object]] = {
            frames.HELLO: lambda link, rank, body: self._preparation.greeted(link),
            frames.REFUSED: lambda link, rank, body: self._preparation.refused(link, body),
            frames.READY: lambda link, rank, body: self._preparation.ready(link, body),
            frames.CHECKED: lambda link, rank, body: self._preparation.checked(link, body),
            frames.STARTED: self._started,
            frames.EXITED: self._exited,
            frames.HOOKED: self._hooked,
            frames.USAGE: lambda link, rank, body: self._history.used(body["usage"], self._now()),
            frames.STACKS: self._dumps.add,
            frames.DUMPED: lambda link, rank, body: self._dumps.told_all(link),
            frames.ENDING: self._agent_ending,
            frames.EMPTY: lambda link, rank, body: self._empty.add(link),
            frames.BYE: self._bye,
            frames.PING: lambda link, rank, body: None,
        }
        self._plan: Plan | None = None
        self._interrupts = 0
        self._empty: set[Link] = set()  # those on whose hosts nothing is left
        self._stopping = False
        self._error: LaunchError | None = None
        self._timed_out = False
        self._limits: Limits | None = None
        self._began_at = time.monotonic()
        # Deadlines, in time.monotonic's seconds.
        self._give_up_at: float | None = None
        # A reason to end the job then, unless a signal comes first.
        self._ending: Stop | None = None
        self._end_at: float | None = None

    def run(self) -> root_cause.Verdict:
        """Run the job; the exit status, and the report, which has been printed.

        Raises:
            LaunchError: it could not be started; nothing of it runs.

        """
        self._loop.watch(self._signals.fd, READ, lambda ready: self._read_signals())
        try:
            self._connector.begin()
            while not self._over():
                self._loop.turn(self._deadline())
                self._expire()
            self._limits = None
            self._lost_output = any(link.greeted and not link.ended for link in self._links)
        finally:
            self._connector.hang_up(_AGENT_END_S if self._interrupts < 3 else 1)
            self._history.keep_last(self._console.tails)
        if self._error is not None:
            raise self._error
        return self._conclude()

    def say(self, text: str) -> None:
        """Print lines of the launcher's own after the end."""
        self._console.say(text)

    # --- start ---

    def _start(self, plan: Plan) -> None:
        """Every host is ready."""
        job, self._plan = self._job, plan
        named = labels(plan, self._log_dir)
        self._console.add_ranks(named, append=self._restart > 0)
        places = {rank.process_id: rank.host.name for rank in plan.ranks}
        self._history.planned(plan.job_id, plan.coordinator, places, common_folder(named))
        self._limits = Limits(job, self._history, self._now())
        for link in self._links:
            link.send(frames.START, **orders(plan, link.host, job, look_s(job)))
            link.open_window()
        self._console.detail(
            f"job {plan.job_id}: {len(plan.ranks)} ranks, coordinator {plan.coordinator}"
        )

    def _now(self) -> float:
        """Seconds since this run began: the history's clock."""
        return time.monotonic() - self._began_at

    @property
    def _links(self) -> list[Link]:
        return self._connector.links

    def _fail(self, error: LaunchError) -> None:
        """The job cannot be started, or not all of it."""
        if self._error is None and self._history.stop is None:
            self._error = error
        self._stop(signal.SIGKILL, 0)

    # --- what agents say ---

    def _handle(self, link: Link, frame: frames.Frame) -> None:
        if frame.kind == frames.DATA:
            self._history.printed(frame.rank, self._now())
            self._console.feed(frame.rank, frame.stream, frame.payload)
            if self._console.has_room:
                link.give_credit()
        else:
            self._told[frame.kind](link, frame.rank, frame.body())

    def _started(self, link: Link, rank: int, body: dict[str, Any]) -> None:
        self._history.started(rank, body["pid"], self._now())
        self._console.detail(f"rank {rank} on {link.host.name}: pid {body['pid']}")

    def _exited(self, link: Link, rank: int, body: dict[str, Any]) -> None:
        if self._history.exited(rank, body, self._now()):
            self._stop_others(rank)
        self._console.detail(f"rank {rank}: {root_cause.fate(self._history.ranks[rank])}")
        self._tell_missing()

    def _hooked(self, link: Link, rank: int, body: dict[str, Any]) -> None:
        if self._history.hooked(rank, body, self._now()):
            self._stop_others(rank)
        if "joining" in body:
            self._tell_missing()

    def _tell_missing(self) -> None:
        for words in self._missing.news(self._history):
            self._console.note(words)

    def _agent_ending(self, link: Link, rank: int, body: dict[str, Any]) -> None:
        words = f"host {link.host.name}: its agent was ended: {body['why']}"
        self._end_soon(Stop(words, exit_status.HOST_LOST))

    def _bye(self, link: Link, rank: int, body: dict[str, Any]) -> None:
        self._history.unkillable += body["unkillable"]
        if body["stragglers"]:
            self._console.detail(f"{link.host.name}: ended {body['stragglers']} stray processes")

    def _stop_others(self, rank: int) -> None:
        """A rank failed. Its own agent knows; the other hosts' must be told."""
        if not self._stopping:
            self._history.ranks[rank].stderr = self._console.tails(rank)[1]
            victim = is_victim(self._history.ranks[rank])
            self._stop(signal.SIGTERM, self._job.grace_s("failure"), None if victim else rank)

    def _unreachable(self, failure: Failure) -> None:
        self.lost.add(failure.host)
        self._preparation.failed(failure)

    def _lose(self, link: Link, why: str) -> None:
        """An agent is gone, and with it, as far as we can know, its ranks."""
        self.lost.add(link.host)
        if self._error is not None:
            return
        for rank in self._plan.ranks if self._plan is not None else ():
            if rank.host is link.host:
                self._history.ranks[rank.process_id].lost = True
        words = f"host {link.host.name}: {why}"
        stop = Stop(words, exit_status.HOST_LOST, final=False)
        self._end_job(stop, signal.SIGTERM, self._job.grace_s("failure"))

    # --- reasons to end it ---

    def _stop(self, signum: int, grace: float, culprit: int | None = None) -> None:
        self._stopping = True
        self._preparation.stop()
        self._console.fold_victims(culprit, own_term=not self._interrupts)
        self._connector.stop()
        self._connector.tell_all(frames.STOP, signal=int(signum), grace=grace)

    def _end_job(self, stop: Stop, signum: int, grace: float) -> None:
        """End the job for a reason of the launcher's or the user's."""
        self._history.stopped(stop, self._now())
        self._stop(signum, grace)

    def _read_signals(self) -> None:
        for signum in self._signals.read():
            if signum in ENDING:
                self._interrupted(signal.Signals(signum))
            elif signum in PASSED_ON:
                self._connector.tell_all(frames.SIGNAL, signal=signum)
            elif signum == signal.SIGQUIT:
                self._ask_for_stacks()
            elif signum == signal.SIGCHLD:
                self._connector.reap()

    def _interrupted(self, signum: signal.Signals) -> None:
        """The user wants the job to end; again: now; and again: whatever is still stuck."""
        self._interrupts += 1
        grace = self._job.grace_s(signum.name[3:]) if self._interrupts == 1 else 0.0
        if self._plan is None:
            grace = 0.0
        elif not self._stopping:
            also = "; Ctrl-\\ shows where they are" if signum == signal.SIGINT else ""
            words = f"passed on to the ranks, which get {grace:g} s; again to kill them{also}"
            self._console.note(f"{signum.name}: {words}")
        if self._interrupts > 2 or (self._interrupts > 1 and self._none_left()):
            self._give_up_at = time.monotonic()
        self._end_job(root_cause.interrupted(signum), signum, grace)

    def _reader_gone(self, error: OSError | None) -> None:
        """Nobody takes the output any more; a signal that comes with that has the first word."""
        if not self._console.on_terminal:
            self._end_soon(root_cause.reader_gone(error))
        elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # it comes with a closed terminal
            self._end_soon(root_cause.interrupted(signal.SIGHUP))

    def _end_soon(self, stop: Stop) -> None:
        """End the job as by a TERM, unless a signal comes with the reason for it."""
        if self._end_at is None and self._history.stop is None:
            self._ending = stop
            self._end_at = time.monotonic() + _SIGNAL_S

    def _ask_for_stacks(self) -> None:
        if self._plan is not None:
            self._dumps.request(self._links, of_all_threads=self._timed_out)

    def _show_stacks(self, lines: list[str]) -> None:
        from mcjax_launch.diagnosis.hang import picture

        self._history.stacks = tuple(lines)
        if not self._timed_out:
            lines += picture(self._history)
        if lines:
            self._console.say("\n".join(lines))
        if self._timed_out:
            self._stop(signal.SIGTERM, self._job.grace_s("failure"))

    def _time_out(self, stop: Stop) -> None:
        """The job is not to go on: end it, but first have its stacks."""
        if self._stopping:
            return
        if not stop.picture:
            self._end_job(stop, signal.SIGTERM, self._job.grace_s("failure"))
            return
        self._history.stopped(stop, self._now())
        self._timed_out = True
        self._ask_for_stacks()

    # --- time ---

    def _deadline(self) -> float | None:
        times = (
            self._limits_at,
            self._dumps.deadline,
            self._give_up_at,
            self._end_at,
            self._console.deadline,
            self._connector.deadline,
            self._preparation.deadline,
        )
        return min((at for at in times if at is not None), default=None)

    @property
    def _limits_at(self) -> float | None:
        at = self._limits.deadline if self._limits is not None else None
        return None if at is None else at + self._began_at

    def _expire(self) -> None:
        now = time.monotonic()
        self._console.expire(now)
        self._connector.expire()
        self._preparation.expire(self._connector.settled)
        if self._history.stop is not None and self._give_up_at is None and self._none_left():
            self._give_up_at = now + _READER_MOST_S  # a job that was stopped waits for no reader
        if self._end_at is not None and now >= self._end_at:
            self._end_at = None
            if not self._interrupts and self._ending is not None:
                grace = self._job.grace_s("TERM")
                self._console.note(f"{self._ending.words}: TERM to the ranks, and {grace:g} s")
                self._end_job(self._ending, signal.SIGTERM, grace)
        if (lines := self._dumps.finished()) is not None:
            self._show_stacks(lines)
        if not self._console.has_room:  # a slow reader is no stall
            self._history.active_at = self._now()
        if self._limits is not None and (stop := self._limits.reached(self._now())) is not None:
            self._time_out(stop)
        if self._limits is not None and (overdue := self._limits.overdue) is not None:
            for words in overdue.notes():
                self._console.note(words)
            if ranks := overdue.asked():
                self._connector.tell_all(frames.LOOK, ranks=ranks)

    # --- the end ---

    def _none_left(self) -> bool:
        """Whether no process of the job is left, as far as can be known."""
        return all(link.ended or link in self._empty for link in self._links)

    def _give_credit(self) -> None:
        if self._console.has_room:
            for link in self._links:
                link.give_credit()

    def _over(self) -> bool:
        if self._given_up():
            return True
        return self._connector.settled and all(link.ended for link in self._links)

    def _given_up(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

    def _conclude(self) -> root_cause.Verdict:
        """Print what is left, and the report."""
        self._console.finish_ranks()
        result = root_cause.judge(self._history)
        if self._lost_output:
            self._console.say("nobody took the rest of the output: it is lost")
        if result.report:
            self._console.say("\n".join(result.report))
        elif lines := root_cause.warnings(self._history):
            self._console.say("\n".join(lines))
        while not self._console.empty and not self._given_up():
            self._loop.turn(self._give_up_at)
            self._expire()
        return replace(result, final=result.final or self._interrupts > 0)

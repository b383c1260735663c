"""Decisions on why and how a job ends: (event, now) -> effects, without I/O.

Reasons have many sources: a rank fails, a host is lost, a limit is reached, a signal arrives, the
reader of the output ends. The first reason counts; a later reason can only hasten the end. How
the ranks of a host are ended is decided by its agent, see `agent.supervisor`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from mcjax_launch.errors import LaunchError
from mcjax_launch.journal.stop_reasons import StopReason, interrupted
from mcjax_launch.wire.exit_status import HOST_LOST
from mcjax_launch.wire.value import Value

# Ctrl-C ends a whole pipeline, and scancel a whole job: their effects on the reader of stdout or on
# the agents may be noticed here before the launcher's own signal. Seconds.
SIGNAL_S = 0.3
# Seconds for Python's own end when a signal of the user's has ended the programs of all ranks.
ENDS_S = 0.3
# Seconds for which a stopped job waits for the reader of its last output.
READER_S = 5.0


class JobEffect(Value):
    """Action that the policy has decided on and the launcher carries out."""


class SetReason(JobEffect):
    """Order to record the reason for the job's end."""

    stop: StopReason


class StopRanks(JobEffect):
    """Order to all agents: send the ranks a signal, and SIGKILL after the grace.

    Args:
        by_user: True if the user sent the signal, so that ranks' output about it is shown.
        settles: True to wait a moment before the signal: other ranks may be about to fail in the
            same way.

    """

    signum: int
    grace_s: float
    by_user: bool = False
    settles: bool = False


class ShowStacks(JobEffect):
    """Order to show all threads' stacks of all ranks, and then to call `on_stacks_shown`."""


class Note(JobEffect):
    """Line to print for the user."""

    text: str


Effects = list[JobEffect]


class RankFailure(Value):
    """Failure of a rank.

    Args:
        rank: number of the rank.
        is_victim: True if the failure follows from another rank's failure.
        is_signalled: True if a job-ending signal ended it; its agent may have got that signal too.
        is_early: True if its program ended before initialize(); other ranks' may soon, too.

    """

    rank: int
    is_victim: bool = False
    is_signalled: bool = False
    is_early: bool = False

    @property
    def may_follow(self) -> bool:
        """True if the failure may follow from the loss of a host or the end of an agent."""
        return self.is_victim or self.is_signalled


class StopPolicy:
    """Policy for the end of an attempt, from the first reason to end it.

    Times (`now`, `deadline`) are seconds of any steady clock. Methods return effects.

    Args:
        grace_s: function that returns the grace in seconds for a key of `GRACE_S` of options.
        shows_stacks: key or command that shows the stacks of all ranks; "" if there is none.

    Attributes:
        error: error that prevented the job's start; None if there was none.
        final: True if the job must not be restarted.
        interrupts: number of the user's signals so far that ask for the end.
        stopping: True if the ranks have been asked to end.
        wants_stacks: True if a limit has been reached and stacks are shown before the stop.

    """

    def __init__(
        self,
        grace_s: Callable[[str], float],
        *,
        shows_stacks: str = "Ctrl-\\",
        again: str = "press again to kill them now",
    ) -> None:
        self.error: LaunchError | None = None
        self.final = False
        self.interrupts = 0
        self.stopping = False
        self._grace_s = grace_s
        self._shows_stacks, self._again = shows_stacks, again
        self._running = False  # ranks may have been started
        self._was_stopped = False  # for another reason than the failure of a rank
        self._reason: StopReason | RankFailure | None = None
        self.wants_stacks = False
        # A reason that a signal of the user's may explain, and until when to wait for that signal.
        self._unexplained: StopReason | None = None
        self._unexplained_until: float | None = None
        self._give_up_at: float | None = None
        self._shortened_s: float | None = None

    # --- events ---

    def on_ranks_start(self) -> None:
        """Record that ranks may run from now on, so that signals to them need a grace."""
        self._running = True

    def on_start_failure(self, error: LaunchError) -> Effects:
        """Kill all ranks, because the job could not be started, or not completely."""
        if self.error is None and not isinstance(self._reason, StopReason):
            self.error = error
        return self._stop(StopRanks(signal.SIGKILL, 0.0))

    def on_rank_end(self, failure: RankFailure | None) -> Effects:
        """Stop all ranks, because a rank has ended with a status other than 0.

        Record the failure if none is recorded yet. Stop nothing if the ranks are being stopped
        already, or if the job is ending for a reason that may explain the failure.

        Args:
            failure: the rank's failure; None if the end follows from a signal sent to the rank.

        """
        blames_a_victim = isinstance(self._reason, RankFailure) and self._reason.is_victim
        if failure is not None and (self._reason is None or blames_a_victim):
            self._reason = failure
        if self.stopping or (self.ending and (failure is None or failure.may_follow)):
            return []
        settles = failure is not None and failure.is_early
        grace = self._grace_s("failure")
        return self._stop(StopRanks(signal.SIGTERM, grace, settles=settles))

    def end_job(self, stop: StopReason) -> Effects:
        """End the job at once for a reason such as a lost host or a limit."""
        if self.error is not None:
            return []
        grace = self._grace_s("save" if stop.saved else "failure")
        return self._end(stop, StopRanks(signal.SIGTERM, grace))

    def on_limit(self, stop: StopReason) -> Effects:
        """End the job because of a limit; show the stacks first if `stop` asks for them."""
        if self.ending:
            return []
        if not stop.needs_stacks:
            return self.end_job(stop)
        self.wants_stacks = True
        return [*self._set_reason(stop), ShowStacks()]

    def on_stacks_shown(self) -> Effects:
        """Stop the ranks after a limit: the stacks have been shown, or did not arrive."""
        if not self.wants_stacks or self.stopping:
            return []
        return self._stop(StopRanks(signal.SIGTERM, self._grace_s("failure")))

    def record_unexplained_stop(self, stop: StopReason, now: float) -> Effects:
        """Record a reason, and wait a moment for a signal from the user that would explain it."""
        if self.error is not None or self._unexplained or isinstance(self._reason, StopReason):
            return []
        self._unexplained, self._unexplained_until = stop, now + SIGNAL_S
        return self._set_reason(stop)

    @property
    def ending(self) -> bool:
        """True if the job is about to end, even if its ranks have not been asked to yet."""
        return self.stopping or self._unexplained_until is not None

    def on_interrupt(
        self, signum: int, now: float, *, nothing_left: bool, caught: bool = False
    ) -> Effects:
        """End the job for a signal; kill the ranks at a second signal, exit at a third.

        Args:
            signum: the signal.
            now: time, in the policy's seconds.
            nothing_left: True if no process of the job is known to run.
            caught: True if JAX catches SIGTERM in the ranks, so that they do not end.

        """
        name = signal.Signals(signum).name
        self.interrupts += 1
        grace = self._grace_s(name.removeprefix("SIG")) if self.interrupts == 1 else 0.0
        effects: Effects = []
        if not self._running:
            grace = 0.0
        elif not self.stopping:
            effects.append(Note(self._format_forward_note(name, grace, caught=caught)))
        if self.interrupts > 2 or (self.interrupts > 1 and nothing_left):
            self._give_up_at = now
        if self._unexplained_until is not None:
            self._unexplained_until = None
            if self._reason is self._unexplained:
                self._reason = None
        ranks = StopRanks(signum, grace, by_user=True)
        return [*effects, *self._end(interrupted(signum), ranks)]

    def shorten_grace(self, only_ends: bool) -> Effects:
        """Shorten the grace after a signal of the user's: no program of a rank runs any longer.

        Args:
            only_ends: True if all programs have failed, so that only Python's own end is left;
                False if some wait for a rank that has ended.

        """
        grace_s = ENDS_S if only_ends else self._grace_s("failure")
        if self._shortened_s is not None and grace_s >= self._shortened_s:
            return []
        self._shortened_s = grace_s
        return [StopRanks(signal.SIGTERM, grace_s)]

    def record_nothing_left(self, now: float) -> None:
        """Record that no process is left; a stopped job waits only briefly for its reader."""
        if self._was_stopped and self._give_up_at is None:
            self._give_up_at = now + READER_S

    # --- time ---

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire` next; None for never."""
        times = [at for at in (self._unexplained_until, self._give_up_at) if at is not None]
        return min(times, default=None)

    def expire(self, now: float) -> Effects:
        """End the job if no signal from the user has explained the recorded reason in time."""
        until, stop = self._unexplained_until, self._unexplained
        if until is None or stop is None or now < until:
            return []
        self._unexplained_until = None
        if stop.unread:
            return self._stop(StopRanks(signal.SIGTERM, self._grace_s("failure")))
        grace = self._grace_s("TERM")
        note = Note(f"{stop.message}: SIGTERM to the ranks; {grace:g} s to exit")
        notes = [] if self.stopping else [note]
        return [*notes, *self._stop(StopRanks(signal.SIGTERM, grace))]

    def gives_up(self, now: float) -> bool:
        """Return whether the launcher must exit although processes or output are left."""
        return self._give_up_at is not None and now >= self._give_up_at

    # --- effects ---

    def _end(self, stop: StopReason, ranks: StopRanks) -> Effects:
        return [*self._set_reason(stop), *self._stop(ranks)]

    def _set_reason(self, stop: StopReason) -> Effects:
        """Record a reason, unless an earlier reason has precedence; return the effects."""
        self.final = self.final or stop.final
        self._was_stopped = True
        # Failures that follow from the loss of a host may be noticed before the loss.
        may_follow = isinstance(self._reason, RankFailure) and self._reason.may_follow
        follows = may_follow and stop.status == HOST_LOST
        if self._reason is not None and not follows:
            return []
        if stop == self._reason:
            return []
        self._reason = stop
        return [SetReason(stop)]

    def _stop(self, ranks: StopRanks) -> Effects:
        self.stopping = True
        return [ranks]

    def _format_forward_note(self, name: str, grace_s: float, *, caught: bool) -> str:
        if name == "SIGINT":
            shows = self._shows_stacks
            again = f"{self._again}; {shows} shows where they are" if shows else self._again
            return f"{name} sent to the ranks: they have {grace_s:g} s to exit; {again}"
        where = "the ranks, where JAX catches it" if caught and name == "SIGTERM" else "the ranks"
        again = "send it again to kill them now"
        return f"{name} sent to {where}: they have {grace_s:g} s to exit (--grace); {again}"

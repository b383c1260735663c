"""Why and how a job ends: (event, now) -> effects, and nothing else.

Reasons come from everywhere: a rank fails, a host is lost, a limit is reached, a signal comes, the
reader of the output goes away. The first one counts; a later one can only hasten the end. How the
ranks of one host are ended is the agent's affair, see `agent.supervisor`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire.exit_status import HOST_LOST
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.runs.stop_reasons import StopReason, interrupted

# Ctrl-C ends a whole pipeline, and scancel a whole job: what it does to our reader or our agents
# may be seen here before the signal that is for us.
SIGNAL_S = 0.3
# A job that was stopped waits so long for the reader of its last output.
READER_S = 5.0


class JobEffect(Value):
    """Something for the launcher to do."""


class SetReason(JobEffect):
    """Why the job ends."""

    stop: StopReason


class StopRanks(JobEffect):
    """Have every agent send its ranks this signal, and SIGKILL after the grace.

    Args:
        by_user: the signal is the user's, and what ranks say of it is news.
        settles: other ranks may be about to fail as this one, and get a moment for that.

    """

    signum: int
    grace_s: float
    by_user: bool = False
    settles: bool = False


class ShowStacks(JobEffect):
    """Have the stacks of all ranks shown, with all their threads; then call `stacks_shown`."""


class Note(JobEffect):
    """A line for the user."""

    text: str


Effects = list[JobEffect]


class RankFailure(Value):
    """The failure of a rank.

    Args:
        rank: that failed.
        is_victim: it follows from the failure of another rank.
        is_signalled: a signal that ends jobs ended it; its agent may have got one as well.
        is_early: its program ended before it called initialize(), as others may be about to.

    """

    rank: int
    is_victim: bool = False
    is_signalled: bool = False
    is_early: bool = False

    @property
    def may_follow(self) -> bool:
        """Whether the loss of a host, or the end of its agent, may turn out to be the reason."""
        return self.is_victim or self.is_signalled


class StopPolicy:
    """The end of one run of a job, from the first reason for it on.

    Times (`now`, `deadline`) are seconds of any steady clock. Methods return what is to be done.

    Args:
        grace_s: the grace after a reason, a key of `job.GRACE_S`.
        has_keys: the terminal is the launcher's: a key there shows the stacks.
        again: says how a second SIGINT comes, which kills the ranks.

    Attributes:
        error: why the job could not be started; nothing of it runs then.
        final: the job is not to be started again.
        interrupts: how many signals of the user's have asked for the end.
        stopping: the ranks have been asked to end.
        wants_stacks: a limit has been reached, and the stacks come first.

    """

    def __init__(
        self,
        grace_s: Callable[[str], float],
        *,
        has_keys: bool = True,
        again: str = "press again to kill now",
    ) -> None:
        self.error: LaunchError | None = None
        self.final = False
        self.interrupts = 0
        self.stopping = False
        self._grace_s = grace_s
        self._has_keys, self._again = has_keys, again
        self._running = False  # ranks may have been started
        self._was_stopped = False  # not only by the failure of a rank
        self._reason: StopReason | RankFailure | None = None
        self._early: StopReason | None = None  # a reason of which more will be known
        self.wants_stacks = False
        # The reason, unless a signal of the user's explains it; and how long that may take.
        self._unexplained: StopReason | None = None
        self._unexplained_until: float | None = None
        self._give_up_at: float | None = None
        self._only_waits = False

    # --- events ---

    def ranks_starting(self) -> None:
        """From now on ranks may run, and need their grace."""
        self._running = True

    def start_failed(self, error: LaunchError) -> Effects:
        """The job cannot be started, or not all of it."""
        if self.error is None and not isinstance(self._reason, StopReason):
            self.error = error
        return self._stop(StopRanks(signal.SIGKILL, 0.0))

    def rank_ended(self, failure: RankFailure | None) -> Effects:
        """A rank has ended otherwise than with 0; its own agent knows, the others do not yet.

        Args:
            failure: whose, unless it only followed from a signal that the rank was sent.

        """
        blames_a_victim = isinstance(self._reason, RankFailure) and self._reason.is_victim
        if failure is not None and (self._reason is None or blames_a_victim):
            self._reason = failure
        if self.stopping or (self.ending and (failure is None or failure.may_follow)):
            return []
        settles = failure is not None and failure.is_early
        grace = self._grace_s("failure")
        return self._stop(StopRanks(signal.SIGTERM, grace, settles=settles))

    def stopped(self, stop: StopReason) -> Effects:
        """There is a reason that allows no waiting: a host is lost, a limit is reached."""
        if self.error is not None:
            return []
        grace = self._grace_s("save" if stop.saved else "failure")
        return self._end(stop, StopRanks(signal.SIGTERM, grace))

    def reason_known(self, stop: StopReason) -> Effects:
        """There is a reason; the ranks are stopped for it when more is known."""
        self._early = stop
        return self._set_reason(stop)

    def limit_reached(self, stop: StopReason) -> Effects:
        """The job may not go on; its stacks are wanted first, where the reason says so."""
        if self.ending:  # the end has come before: only the reason may be known better now
            return self._set_reason(stop) if self._is_early else []
        if not stop.needs_stacks:
            return self.stopped(stop)
        self.wants_stacks = True
        return [*self._set_reason(stop), ShowStacks()]

    def stacks_shown(self) -> Effects:
        """The stacks have been shown, or did not come."""
        if not self.wants_stacks or self.stopping:
            return []
        return self._stop(StopRanks(signal.SIGTERM, self._grace_s("failure")))

    def may_be_stopped(self, stop: StopReason, now: float) -> Effects:
        """There is a reason that a signal of the user's may explain: wait a moment for that."""
        if self.error is not None or self._unexplained or isinstance(self._reason, StopReason):
            return []
        self._unexplained, self._unexplained_until = stop, now + SIGNAL_S
        return self._set_reason(stop)

    @property
    def ending(self) -> bool:
        """Whether the job is about to end, though its ranks may not have been asked to yet."""
        return self.stopping or self._unexplained_until is not None

    def interrupted(
        self, signum: int, now: float, *, nothing_left: bool, caught: bool = False, by: str = ""
    ) -> Effects:
        """The user wants the job to end; again: now; and again: whatever is still stuck.

        Args:
            signum: the signal that says so.
            now: the time.
            nothing_left: no process of the job is known to run any more.
            caught: JAX catches a SIGTERM in the ranks, which then run on.
            by: what has sent the signal, if that is known.

        """
        name = signal.Signals(signum).name
        self.interrupts += 1
        grace = self._grace_s(name.removeprefix("SIG")) if self.interrupts == 1 else 0.0
        effects: Effects = []
        if not self._running:
            grace = 0.0
        elif not self.stopping:
            effects.append(Note(self._forwarded(name, grace, caught=caught)))
        if self.interrupts > 2 or (self.interrupts > 1 and nothing_left):
            self._give_up_at = now
        if self._unexplained_until is not None:
            self._unexplained_until = None
            if self._reason is self._unexplained:
                self._reason = None
        ranks = StopRanks(signum, grace, by_user=True)
        return [*effects, *self._end(interrupted(signum, by), ranks)]

    def only_waits(self) -> Effects:
        """All ranks that still run wait for one that is gone: they need no long grace."""
        if self._only_waits:
            return []
        self._only_waits = True
        return [StopRanks(signal.SIGTERM, self._grace_s("failure"))]

    def nothing_left(self, now: float) -> None:
        """No process of the job is left; one that was stopped does not wait long for its reader."""
        if self._was_stopped and self._give_up_at is None:
            self._give_up_at = now + READER_S

    # --- time ---

    @property
    def deadline(self) -> float | None:
        """When to call `expire` next."""
        times = [at for at in (self._unexplained_until, self._give_up_at) if at is not None]
        return min(times, default=None)

    def expire(self, now: float) -> Effects:
        """Act if a reason has waited long enough for a signal that explains it."""
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
        """Whether to leave although something is still stuck."""
        return self._give_up_at is not None and now >= self._give_up_at

    # --- effects ---

    def _end(self, stop: StopReason, ranks: StopRanks) -> Effects:
        return [*self._set_reason(stop), *self._stop(ranks)]

    def _set_reason(self, stop: StopReason) -> Effects:
        """The first reason counts, but for two that were known too early, and for a save."""
        self.final = self.final or stop.final
        self._was_stopped = True
        # What the loss of a host does to its peers may be seen before the loss itself.
        may_follow = isinstance(self._reason, RankFailure) and self._reason.may_follow
        follows = may_follow and stop.status == HOST_LOST
        is_again = isinstance(self._reason, StopReason) and self._reason.saved and stop.ends_all
        if self._reason is not None and not (self._is_early or follows or is_again):
            return []
        if stop == self._reason:
            return []
        self._reason = stop
        return [SetReason(stop)]

    @property
    def _is_early(self) -> bool:
        return self._early is not None and self._reason is self._early

    def _stop(self, ranks: StopRanks) -> Effects:
        self.stopping = True
        return [ranks]

    def _forwarded(self, name: str, grace_s: float, *, caught: bool) -> str:
        if name == "SIGINT":
            keys = "; Ctrl-\\ shows where they are" if self._has_keys else ""
            again = f"{self._again}{keys}"
            return f"{name} forwarded to the ranks; {grace_s:g} s to exit, {again}"
        where = "the ranks, where JAX catches it" if caught and name == "SIGTERM" else "the ranks"
        again = "send it again to kill them now"
        return f"{name} forwarded to {where}; {grace_s:g} s to exit (--grace), {again}"

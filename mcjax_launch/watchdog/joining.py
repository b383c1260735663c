"""Ranks that call initialize(), or end without: who waits in vain, and who is kept apart."""

from typing import TYPE_CHECKING

from mcjax_launch.kernel.wire.timers import scaled
from mcjax_launch.ranks import these_ranks
from mcjax_launch.runs import stop_reasons
from mcjax_launch.runs.rank_run import RankRun, Stage
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import StopReason

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.initialize_calls import Callers
    from mcjax_launch.kernel.wire.hook_messages import CalledBelow, Joining

_OWN_ARGUMENTS = (
    "hint: write jax.distributed.initialize() without arguments: it gets them from the launcher"
)
_GONE = (
    "hint: every rank has to call initialize(), or none: did this one take another branch, or did "
    "its shell hide a failure?"
)
#: Ranks that compile, or print, without having joined are told of after so many seconds.
SEPARATE_S = scaled(10.0)
# So many numbers of processes are shown.
_MOST_NUMBERS = 8


class AbsentRanks:
    """Ends a job whose ranks all wait in vain, and notes what may lead to that.

    What it does for each call and each end does not grow with the number of ranks.
    """

    def __init__(self) -> None:
        self._callers: Callers | None = None
        self._gone: list[int] = []  # without having called initialize()
        self._unreported: list[int] = []  # of these
        self._lines: list[str] = []
        self._reported_size = False
        # All ranks, and the place among them of one that does not wait, as far as is known.
        self._ranks: list[int] = []
        self._first = 0
        self._waiting: RankRun | None = None  # one that does

    def called(self, state: RunState, rank: int) -> StopReason | None:
        """The reason to end the job, if a rank's call of initialize() can never return.

        Call it for each such call, and `ended` for each end: either may come first.
        """
        from mcjax_launch.diagnosis.initialize_calls import Callers, oversized_call

        if state.ending:
            return None
        run = state.ranks[rank]
        self._callers = self._callers or Callers()
        blame = self._callers.hopeless(state, run)
        if blame is not None:
            return stop_reasons.hopeless(blame.run.process_id, str(blame), [_OWN_ARGUMENTS])
        if not self._reported_size and (blame := oversized_call(state, run)) is not None:
            self._reported_size = True
            how = "which waits for the rest of them (--start-timeout ends such a wait)"
            self._lines.append(f"{blame}, {how}")
        if _waits(run, state):
            self._waiting = run
        return self._in_vain(state)

    def ended(self, state: RunState, rank: int) -> StopReason | None:
        """The reason to end the job, if all that run wait in initialize() for one that is gone."""
        run = state.ranks[rank]
        if run.never_came:
            self._gone.append(rank)
            self._unreported.append(rank)
        elif run.vanished and not state.ending and state.running:
            from mcjax_launch.diagnosis.culprit import LEFT

            self._lines.append(f"rank {rank} {LEFT}")
        return self._in_vain(state)

    def _in_vain(self, state: RunState) -> StopReason | None:
        """The reason to end the job, if all that run wait for one that is gone."""
        if not self._gone or not state.initialize_calls or state.ending:
            return None
        self._ranks = self._ranks or list(state.ranks)
        for _ in self._ranks:
            run = state.ranks[self._ranks[self._first]]
            if run.status is None and not _waits(run, state):
                return None
            self._first = (self._first + 1) % len(self._ranks)
        running = state.running
        if not running:
            return None
        waiting = these_ranks(run.process_id for run in running)
        verb = "wait" if len(running) > 1 else "waits"
        it = "it" if len(self._gone) == 1 else "them"
        gone = f"{these_ranks(self._gone)} {_came_to(state, self._gone)}"
        message = f"{gone} {waiting} {verb} for {it}"
        from mcjax_launch.diagnosis.initialize_calls import lone_ranks

        return stop_reasons.hopeless(min(self._gone), message, [lone_ranks(state) or _GONE])

    def notes(self, state: RunState) -> list[str]:
        """Lines on what has not been reported yet, and does not end the job by itself."""
        if not state.initialize_calls or state.ending:
            return []
        lines, self._lines = self._lines, []
        if self._unreported and self._is_awaited(state):
            how = "others wait for it; the job ends when all of them do"
            lines += [f"rank {rank} {_came_to(state, [rank])} {how}" for rank in self._unreported]
            self._unreported = []
        return lines

    def _is_awaited(self, state: RunState) -> bool:
        """Whether any rank waits for one that is gone."""
        if self._waiting is not None and not _waits(self._waiting, state):
            self._waiting = next((run for run in state.running if _waits(run, state)), None)
        return self._waiting is not None


def _came_to(state: RunState, gone: list[int]) -> str:
    from mcjax_launch.diagnosis.initialize_calls import how_absent

    return f"exited with 0 {how_absent(state.ranks[min(gone)])}, where"


def _waits(run: RankRun, state: RunState) -> bool:
    """Whether a rank is in initialize(), for all ranks of this job."""
    call = run.membership.call
    size = call.num_processes if call is not None else None
    return size == state.num_processes and run.place.stage is Stage.JOINING


class SeparateRanks:
    """Tells early of ranks that use JAX, or print for long, and have not joined.

    Args:
        state: of the run.

    Attributes:
        below: tells of what these ranks, and any others, have started.

    """

    def __init__(self, state: RunState) -> None:
        self.below = CallsBelow(state)
        self._state = state
        self._pause_s = SEPARATE_S
        self._is_told = False
        self.deadline: float | None = None

    def use_jax(self, now: float) -> None:
        """Watch from now on: a rank has imported jax, compiles, or cannot join.

        Args:
            now: in time.monotonic's seconds.

        """
        if not self._is_told:
            soon = now + SEPARATE_S
            self.deadline = soon if self.deadline is None else min(soon, self.deadline)

    def expire(self, now: float) -> str | None:
        """The line, if it is time, and if it is so."""
        if self.deadline is None or now < self.deadline:
            return None
        from mcjax_launch.diagnosis.initialize_calls import lone_ranks

        self.deadline = None
        state = self._state
        if state.ending:
            return None
        if line := lone_ranks(state):
            self._is_told = True
            return line
        if state.initialize_calls:
            return None
        if sum(_is_on_its_own(run, now) for run in state.running) < 2:
            self._pause_s *= 2
            self.deadline = now + self._pause_s
            return None
        self._is_told = True
        return (
            "no rank has called jax.distributed.initialize(): these run as "
            f"{state.num_processes} separate single-process jobs; call it before anything "
            "else of JAX's"
        )


def _is_on_its_own(run: RankRun, now: float) -> bool:
    """Whether a rank has compiled a program, or has printed for long with jax imported."""
    process = run.process
    if run.compilations.latest is not None:
        return True
    if run.membership.imported is None or process.first_output_at is None:
        return False
    printed_s = (process.last_output_at or 0.0) - process.first_output_at
    return now - process.first_output_at >= SEPARATE_S and printed_s >= SEPARATE_S / 2


class CallsBelow:
    """Tells of calls of initialize() in processes that ranks have started.

    Each line of a program is told of once for all ranks that are known to call it there.

    Args:
        state: of the run.

    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._told: set[tuple[CalledBelow, int]] = set()
        self.deadline: float | None = None

    def called(self, now: float) -> None:
        """Tell soon of one more call; at `now`, in time.monotonic's seconds."""
        from mcjax_launch.diagnosis.initialize_calls import calls_below

        count = min(map(len, calls_below(self._state).values()), default=0)
        due = now if count == len(self._state.ranks) else now + SEPARATE_S
        self.deadline = due if self.deadline is None else min(due, self.deadline)

    def expire(self, now: float) -> str | None:
        """Return the lines on what has not been told, if it is time."""
        if self.deadline is None or now < self.deadline:
            return None
        return self.untold()

    def untold(self) -> str | None:
        """Return the lines on what has not been told; None if there are none."""
        from mcjax_launch.diagnosis.initialize_calls import call_below_line, calls_below

        self.deadline = None
        lines = []
        for call, ranks in calls_below(self._state).items():
            new = [rank for rank in ranks if (call, rank) not in self._told]
            self._told.update((call, rank) for rank in new)
            lines += [call_below_line(call, new)] if new else []
        return "\n".join(lines) or None


class JoiningRanks:
    """Remembers what has been reported."""

    def __init__(self) -> None:
        self._reported: set[object] = set()
        self._are_numbered = self._is_ordered = False
        # Of the first rank: all are looked at only where another's are different.
        self._first: Joining | None = None

    def notes(self, state: RunState, rank: int) -> list[str]:
        """Lines on what has not been reported yet; call it whenever a rank calls initialize()."""
        from mcjax_launch.diagnosis.initialize_calls import (
            elsewhere,
            other_setting,
            other_version,
            without_partition,
        )

        call = state.ranks[rank].membership.call
        if call is None or state.ending:
            return []
        first = self._first = self._first or call
        lines = []
        suspected = {
            other_version: (call.jax, call.jaxlib) != (first.jax, first.jaxlib),
            without_partition: (call.partition is None) is not (first.partition is None),
            elsewhere: call.elsewhere,
            other_setting: call.settings != first.settings,
        }
        for find, is_suspected in suspected.items():
            blame = find(state) if is_suspected and find not in self._reported else None
            if blame is not None:
                self._reported.add(find)
                lines.append(str(blame))
        return lines

    def backend_note(self, state: RunState) -> str:
        """A line on ranks with other devices, if it is new; call it when a rank starts a backend.

        It is said at once, and once more if it reads differently when all have started theirs.
        """
        from mcjax_launch.diagnosis.initialize_calls import unlike_others

        known = sum(run.membership.backend is not None for run in state.ranks.values())
        line = unlike_others(state) if not state.ending else ""
        if not line or line in self._reported:
            return ""
        if unlike_others in self._reported and known < len(state.ranks):
            return ""
        self._reported |= {unlike_others, line}
        return line

    def mesh_note(self, state: RunState) -> str:
        """The line on a mesh whose devices are in another order; call it when programs differ."""
        from mcjax_launch.diagnosis.spmd import other_device_order

        if self._is_ordered or not state.diverged or state.ending:
            return ""
        self._is_ordered = True
        return other_device_order(state.programs)

    def numbers(self, state: RunState, rank: int) -> list[str]:
        """The line on processes whose numbers are not their ranks; call it when one is known."""
        members = state.comparison_of(state.ranks[rank]).members
        known = {} if self._are_numbered else members.others(state.ranks)
        if not known:
            return []
        self._are_numbered = True
        pairs = [f"{process} is rank {known[process]}" for process in sorted(known)]
        more = ", ..." if len(pairs) > _MOST_NUMBERS else ""
        return [
            f"jax.process_index() is not the rank here: {', '.join(pairs[:_MOST_NUMBERS])}{more}"
        ]

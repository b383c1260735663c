"""Rules on ranks that stand still: which ranks wait for which; pure.

The rules use stacks, hooks' reports and idle compilations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from mcjax_launch.diagnosis.findings.alone import explain_refusal
from mcjax_launch.diagnosis.findings.compiling import IdleCompilation, find_idle_compilations
from mcjax_launch.diagnosis.findings.joining import wrong_address, wrong_call
from mcjax_launch.diagnosis.findings.settings import other_version
from mcjax_launch.diagnosis.snapshots import RankSnapshot, Stack, make_snapshots
from mcjax_launch.diagnosis.view import Finding, Positions, View
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import format_all_ranks, format_ranks, group_by_key, inflect_have
from mcjax_launch.runs.past_waits import PastWait
from mcjax_launch.runs.rank_run import Stage
from mcjax_launch.runs.spmd import format_title
from mcjax_launch.runs.state import RunState
from mcjax_launch.wording import format_rough_duration

# A rank waits for others in initialize(), in JAX's exit barrier, or where its main thread is
# blocked by JAX: in a collective or a barrier. Those that are anywhere else have not come.

# At most this many places are shown.
_MOST_GROUPS = 2
_OVER = "after Python's end"
_UNREAD = "C++ code, usually a JAX program whose result was never read"
_TIMEOUT_FLAG = "--xla_cpu_collective_timeout_seconds="
_CPU_COLLECTIVES = (
    "on CPU a collective with a rank that has died does not end: "
    f"-x XLA_FLAGS={_TIMEOUT_FLAG}20 makes it an error, unless the program sets XLA_FLAGS itself; "
    "a restarted rank cannot take part in one"
)
_ONE_FOLDER = (
    "when saving, Orbax's processes wait for one another, and for what one of them creates: give "
    "all of them the same folder, on a file system that all hosts share"
)
#: Advice for a job in which a rank has finished and another one has not.
OTHER_STEPS = (
    "the ranks do not take the same number of steps: do they all have the same amount of data?"
)

# --- rules ---


def ranks_wait(view: View) -> Iterator[Finding]:
    """Find the ranks that wait and those they wait for; certain if it is a proven deadlock."""
    wait, positions = find_wait(view), view.positions
    if wait is None or positions is None:
        return
    words, late = wait.describe(view.now), tuple(sorted(wait.late))
    if positions.is_whole and wait.is_deadlock and not may_act(view.state, positions.stacks):
        cure = "" if view.state.diverged else OTHER_STEPS
        words = f"{words}, so the job can never go on"
        yield Finding(wait.key, words, late, cure, wait.since, is_certain=True, is_final=False)
    else:
        yield Finding(wait.key, words, late, since=wait.since)


def endless_collective(view: View) -> Iterator[Finding]:
    """Advise to set a collective timeout if ranks wait on CPU after a rank has failed."""
    if (
        find_wait(view) is not None
        and view.state.has_outlived_failure
        and lacks_collective_timeout(view.state)
    ):
        yield Finding("CPU collectives", "", cure=_CPU_COLLECTIVES)


def waits_in_orbax(view: View) -> Iterator[Finding]:
    """Advise to use one shared folder if ranks wait for one another in Orbax."""
    wait = find_wait(view)
    if wait is not None and wait.with_orbax:
        yield Finding("Orbax", "", cure=_ONE_FOLDER)


def lacks_collective_timeout(state: RunState) -> bool:
    """Return whether ranks run on CPU and none is known to set XLA's collective timeout."""
    if all(run.compilations.platform != "cpu" for run in state.running):
        return False
    calls = (run.membership.call for run in state.ranks.values())
    settings = (call.settings for call in calls if call is not None and call.settings)
    return all(_TIMEOUT_FLAG not in setting.get("XLA_FLAGS", "") for setting in settings)


# --- which ranks wait for which ---


class Wait(Value):
    """A wait of some ranks for others.

    Args:
        waiting: pairs of a place, in words, and the ranks that wait there.
        since: start of the longest wait, in time.monotonic's seconds.
        absent: words for the ranks that have not arrived, with their positions.
        late: numbers of the same ranks; empty if all ranks wait for one another.
        compiling: idle compilations, in which further ranks wait.
        threads: switch counts of other threads, for which main threads wait. Such a thread surely
            waits only if a later poll finds the same count.
        with_orbax: True if a waiting rank is in Orbax's code.
        is_deadlock: True if no main thread can go on, so that only other threads could end the
            wait.
        in_jax: True if the ranks wait in JAX; False if all stand still for an unknown reason.

    """

    waiting: tuple[tuple[str, tuple[int, ...]], ...]
    since: float
    absent: str
    late: tuple[int, ...]
    compiling: tuple[IdleCompilation, ...] = ()
    threads: tuple[str, ...] = ()
    with_orbax: bool = False
    is_deadlock: bool = False
    in_jax: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the wait: waits with the same places and compilations have equal keys."""
        compiling = (f"{idle.program} {idle.where}" for idle in self.compiling)
        return (*(where for where, _ in self.waiting), *compiling)

    def describe(self, now: float) -> str:
        """Describe the wait in one line; `now` is in time.monotonic's seconds."""
        told = [idle.describe(now) for idle in self.compiling[:_MOST_GROUPS]]
        if self.waiting:
            told.append(self._describe_waiting_ranks(now))
        elif self.absent:
            told[-1] += f": {'it waits' if self._is_one else 'they wait'} for {self.absent}"
        return "; ".join(told)

    @property
    def _is_one(self) -> bool:
        return sum(len(idle.ranks) for idle in self.compiling) == 1

    def _describe_waiting_ranks(self, now: float) -> str:
        groups = [f"{format_ranks(ranks)} {where}" for where, ranks in self.waiting[:_MOST_GROUPS]]
        for_long = format_rough_duration(now - self.since)
        if not self.in_jax:
            count = format_all_ranks(sum(len(ranks) for _, ranks in self.waiting))
            return f"{count} have stood still for {for_long}, not in JAX: {_format_list(groups)}"
        if others := [rank for _, ranks in self.waiting[_MOST_GROUPS:] for rank in ranks]:
            groups.append(f"{format_ranks(others)} elsewhere")
        if len(groups) > 1:
            return f"{_format_list(groups)} have waited {for_long} for {self.absent}"
        where, ranks = self.waiting[0]
        have = inflect_have(ranks)
        return f"{format_ranks(ranks)} {have} waited {for_long} {where} for {self.absent}"


class _WaitSearch:
    """The search for a wait among all ranks at one moment; see `find_wait`."""

    def __init__(self, view: View, positions: Positions) -> None:
        self.view, self.state = view, view.state
        state, stacks, polling = view.state, positions.stacks, positions.polling
        still, computing = positions.still, positions.computing
        self.ranks = {rank: RankSnapshot(run) for rank, run in state.ranks.items()}
        self.ranks |= make_snapshots(state, stacks)
        self.computing = computing
        self.still = still
        self.compiling: dict[int, float] = {}
        self.blocked: dict[int, float] = {}
        self.unsure: Collection[int] = ()
        self.spins = any(seen.run.compilations.on_accelerator for seen in self.ranks.values())
        self.has_unhandled_error = any(run.unhandled_errors for run in state.ranks.values())
        # The thread for which a main thread waits may be what waits for other ranks.
        self.ranks = {
            rank: seen.in_thread if seen.in_thread and seen.in_thread.awaits_ranks else seen
            for rank, seen in self.ranks.items()
        }
        self._find_blocked(polling)
        if (self.has_unhandled_error or not self.blocked) and not self.spins:
            self.ranks = {rank: seen.in_thread or seen for rank, seen in self.ranks.items()}
            self._find_blocked(polling)

    def _find_blocked(self, polling: Collection[int]) -> None:
        """Set `compiling`, `unsure` and `blocked`: ranks that JAX blocks, with the start times."""
        idle = self.state.idle_compilations
        inside = [rank for rank, seen in self.ranks.items() if seen.reached.stage is Stage.INSIDE]
        self.compiling = {rank: idle[rank] for rank in inside if rank in idle}
        self.blocked = {
            rank: since
            for rank, since in self.still.items()
            if rank not in self.computing
            and self._is_blocked(self.ranks[rank], polls=rank in polling)
        } | self.compiling
        self.unsure = self._find_unsure_ranks()
        self.blocked = {rank: at for rank, at in self.blocked.items() if rank not in self.unsure}

    def _is_blocked(self, seen: RankSnapshot, *, polls: bool) -> bool:
        if seen.reached.stage is not Stage.INSIDE or seen.run.compilations.under_way:
            return False
        return seen.is_blocked_by_jax or (polls and seen.sleeps)

    def _find_unsure_ranks(self) -> Collection[int]:
        """Return blocked ranks that may wait for a lock in the user's code rather than in JAX.

        Empty if no rank surely waits in JAX, or on accelerators, where programs may run in C.
        """
        sure = {rank for rank in self.blocked if self.ranks[rank].is_surely_in_jax}
        if self.spins or not sure:
            return ()
        places = {self._describe_position(rank) for rank in sure}
        others = self.blocked.keys() - self.compiling.keys()
        return {rank for rank in others if self._describe_position(rank) not in places}

    def search(self) -> Wait | None:
        since_of, awaited = self._find_waiting_ranks()
        if not since_of:
            return self._find_stall() or self._find_wait_after_end()
        others = [rank for rank in self.ranks if rank not in since_of and awaited(rank)]
        absent = [rank for rank in others if not self._may_be_well(rank)]
        compile_too = any(self.ranks[rank].compiles for rank in others)
        if len(absent) < len(others) and (not absent or compile_too):
            return None
        waiting = _group_ranks(
            (rank, self._describe_position(rank)) for rank in since_of if rank not in self.compiling
        )
        compiling = tuple(find_idle_compilations(self.state)) if self.compiling else ()
        if absent:
            words = self._describe_absent_ranks(absent)
        elif compiling and waiting:
            words = format_ranks(self.compiling)
        else:
            words = self._describe_wait_cause(waiting)
        if not (words or compiling):
            return None
        seen = [self.ranks[rank] for rank in since_of]
        return Wait(
            waiting,
            min(since_of.values()),
            words,
            tuple(absent),
            compiling,
            threads=tuple(stack.switches for stack in seen if stack.main is not None),
            is_deadlock=self._is_deadlock(absent),
            with_orbax=any(frame.library == "orbax" for stack in seen for frame in stack.frames),
        )

    # --- whether that lasts for ever: docs/failures.md has the table ---

    def _is_deadlock(self, absent: Sequence[int]) -> bool:
        """Return whether every rank has finished, or waits for a rank that has finished."""
        calls = [seen.run.membership.call for seen in self.ranks.values()]
        may_go_on = any(call is not None and call.recoverable for call in calls)
        if self.state.survives or may_go_on or self.state.has_others or not absent:
            return False
        lasts = self._may_collectives_last(absent)
        running = (rank for rank, seen in self.ranks.items() if not seen.run.is_gone)
        return all(self._has_finished(rank) for rank in absent) and all(
            self._has_finished(rank) or self._is_stuck(rank, absent if lasts else ())
            for rank in running
        )

    def _may_collectives_last(self, absent: Sequence[int]) -> bool:
        """Return whether a collective with the absent ranks lasts for ever.

        False on accelerators, whose work cannot be observed, and if a timeout of JAX ends it.
        """
        known = self.state.hosts == 1 or all(map(self._has_run_less, absent))
        return known and not self.spins and lacks_collective_timeout(self.state)

    def _has_finished(self, rank: int) -> bool:
        """Return whether a rank exited with 0 or stands still in JAX's exit barrier."""
        seen = self.ranks[rank]
        stands = rank in self.still and rank not in self.computing
        return seen.run.status == 0 or (stands and seen.is_in_exit_barrier)

    def _has_run_less(self, rank: int) -> bool:
        """Return whether a rank has exited, or skipped a program that others have run.

        Any other rank may have sent its data before it finished, and the network may have failed.
        """
        skipped = (missing for _, _, missing in self.state.programs.list_unfinished())
        return self.ranks[rank].run.status == 0 or any(rank in missing for missing in skipped)

    def _is_stuck(self, rank: int, absent: Collection[int]) -> bool:
        """Return whether a rank surely waits at a barrier, or in a collective with absent ranks."""
        seen = self.ranks[rank]
        if rank not in self.blocked or rank in self.compiling:
            return False
        ranks = seen.find_certain_collective(frozenset(self.ranks))
        return seen.awaits_all_ranks or not ranks.isdisjoint(absent)

    def _find_stall(self) -> Wait | None:
        """Return a wait if all ranks stand still outside JAX after a thread's error; else None."""
        inside = [rank for rank, seen in self.ranks.items() if not seen.run.is_gone]
        well = (rank not in self.still or self._may_be_well(rank) for rank in inside)
        if not self.has_unhandled_error or self.spins or any(well):
            return None
        places = _group_ranks((rank, self.ranks[rank].position_with_threads) for rank in inside)
        return Wait(places, min(self.still[rank] for rank in inside), "", (), in_jax=False)

    def _find_wait_after_end(self) -> Wait | None:
        """Return a wait if all running ranks stand still after Python's end; else None."""
        over = [rank for rank, seen in self.ranks.items() if not seen.run.is_gone]
        if not all(rank in self.still and self.ranks[rank].is_over for rank in over) or not over:
            return None
        return Wait(((_OVER, tuple(over)),), min(self.still[rank] for rank in over), _UNREAD, ())

    def _may_be_well(self, rank: int) -> bool:
        """Return whether an absent rank may still arrive: it computes, compiles or waits too."""
        seen = self.ranks[rank]
        if rank in self.computing or seen.compiles or seen.waits_for_somebody:
            return True
        if seen.in_thread is not None or (seen.may_serve and not self.blocked):
            return True
        inside = seen.reached.stage is Stage.INSIDE and rank not in self.unsure
        return inside and seen.is_blocked_by_jax

    def _find_waiting_ranks(self) -> tuple[dict[int, float], Callable[[int], bool]]:
        """Return the start of each waiting rank's wait, and a predicate for awaited ranks."""
        if self.blocked:
            taking_part = self._find_participants()
            return self.blocked, lambda rank: rank in taking_part and not self._has_left(rank)
        if joining := self._select_ranks_at(Stage.JOINING):
            return joining, lambda rank: not self.ranks[rank].run.membership.has_called
        leaving = self._select_ranks_at(Stage.LEAVING)
        return leaving, lambda rank: self.ranks[rank].reached.stage is Stage.INSIDE

    def _select_ranks_at(self, stage: Stage) -> dict[int, float]:
        reached = {rank: seen.reached for rank, seen in self.ranks.items()}
        return {rank: at.since or 0.0 for rank, at in reached.items() if at.stage is stage}

    def _has_left(self, rank: int) -> bool:
        """Return whether a rank has left the JAX job, or failed in a job that ends with it."""
        run = self.ranks[rank].run
        return run.membership.left or (not self.state.survives and (run.status or 0) != 0)

    def _find_participants(self) -> Collection[int]:
        """Return the ranks of the programs that block ranks; all ranks if a program is unknown."""
        programs = [self.ranks[rank].program for rank in self.blocked]
        known = [program.ranks for program in programs if program is not None]
        return frozenset().union(*known) if len(known) == len(programs) else self.ranks

    def _describe_position(self, rank: int) -> str:
        """Return the place where a rank waits, in words."""
        seen = self.ranks[rank]
        return str(seen.reached) if seen.reached.waits_for_others else seen.blocked_at

    # --- those that have not come ---

    def _describe_absent_ranks(self, absent: Sequence[int]) -> str:
        groups = [
            f"{self.view.format_ranks(ranks)}, which "
            + doing.format(_inflect_be(ranks), inflect_have(ranks))
            for doing, ranks in _group_ranks(
                (rank, _describe_activity(self.ranks[rank])) for rank in absent
            )
        ]
        omitted = len(groups) - _MOST_GROUPS
        rest = [f"others in {omitted} more places"] if omitted > 0 else []
        return _format_list([*groups[:_MOST_GROUPS], *rest])

    def _describe_wait_cause(self, waiting: Sequence[tuple[str, tuple[int, ...]]]) -> str:
        """Describe the cause of a wait in which no rank is absent; "" if all may be well."""
        if self.state.has_others:
            return "ranks of other launchers"
        seen = [self.ranks[rank] for _, ranks in waiting for rank in ranks]
        if any(rank.reached.stage is Stage.JOINING for rank in seen):
            found = (rule(self.view) for rule in (wrong_call, other_version, wrong_address))
            calls = (rank.run.membership.call for rank in seen)
            address = next(call.coordinator_address for call in calls if call is not None)
            unreachable = f"can they all reach {address}?"
            why = next((finding.words for finding in chain(*found)), unreachable)
            return f"one another: {why}"
        apart = len(waiting) > 1 and not self.computing
        return "one another" if self.blocked and apart and not self.spins else ""


def _describe_activity(seen: RankSnapshot) -> str:
    """Describe an absent rank's activity, with `{0}` for is/are and `{1}` for has/have."""
    if seen.run.status == 0:
        return "exited with 0"
    if seen.run.is_gone:
        return "{1} failed"
    if seen.reached.stage is Stage.LEAVING:
        return _describe_leaving_rank(seen)
    if (refused := seen.run.membership.refused) is not None:
        return _escape_braces(f"went on alone after initialize() failed {explain_refusal(refused)}")
    standing = _escape_braces(seen.position_with_threads)
    if seen.reached.stage in (Stage.ABSENT, Stage.IMPORTING):
        doing = "{1} not called it"
        return doing + (f" and {{0}} {standing}" if standing else "")
    if not standing:
        state = seen.stack.state if seen.stack is not None else None
        return (
            "{0} elsewhere" if state is None else f"shows no Python stack: {_escape_braces(state)}"
        )
    latest = seen.run.compilations.latest
    last = f"last compiled {format_title(latest.name)} at {latest.where}" if latest else ""
    return "{0} " + standing + (f" ({_escape_braces(last)})" if last else "")


def _describe_leaving_rank(seen: RankSnapshot) -> str:
    """Describe a rank that has finished or calls shutdown(), as `_describe_activity` does."""
    place = str(seen.reached)
    if seen.is_in_users_code and seen.is_in_exit_barrier:
        return f"{{0}} {place}, {_escape_braces(seen.blocked_at)}"
    where = seen.position_with_threads if seen.is_in_users_code else place
    return f"{{1}} finished and {{0}} {_escape_braces(where)}"


def find_wait(view: View) -> Wait | None:
    """Return the wait of some ranks for others; None if unknown, or if all may be well."""
    return view.compute_once(_find_wait)


def correct_wait(view: View, wait: Wait | None) -> None:
    """Replace the wait that `find_wait` returns for this view."""
    view.keep(_find_wait, wait)


def _find_wait(view: View) -> Wait | None:
    return _WaitSearch(view, view.positions).search() if view.positions is not None else None


def may_act(state: RunState, stacks: Iterable[Stack]) -> bool:
    """Return whether a running rank has other threads that may still end the wait.

    Args:
        state: state of the run.
        stacks: stacks of all threads of the ranks, now.

    """
    seen = make_snapshots(state, stacks)
    return any(run.process_id not in seen or seen[run.process_id].may_act for run in state.running)


def find_last_wait(state: RunState, stacks: Iterable[Stack]) -> PastWait | None:
    """Return the ranks' wait when a limit was reached, for the record; None if unknown.

    Args:
        state: state of the run, with its reason to stop.
        stacks: stacks of the ranks when the limit was reached.

    """
    if state.idle_since is None or state.stop_at is None:
        return None
    still = {
        run.process_id: max(run.membership.joined_at, state.idle_since)
        for run in state.running
        if run.membership.joined_at is not None
    }
    positions = Positions(list(stacks), still)
    wait = find_wait(View(state, state.stop_at, positions))
    if wait is None or not wait.late or not wait.waiting:
        return None
    waiting = (rank for _, ranks in wait.waiting for rank in ranks)
    arrived = sorted(
        ((rank, still.get(rank, wait.since)) for rank in waiting), key=lambda arrival: arrival[1]
    )
    # "in jit(step) at train.py:3", where all wait at one place.
    place, _, where = (
        wait.waiting[0][0].rpartition("at ") if len(wait.waiting) == 1 else ("", "", "")
    )
    place = place.removeprefix("in ").rstrip()
    return PastWait(place, where, tuple(arrived), wait.late, state.stop_at)


def _group_ranks(places: Iterable[tuple[int, str]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Group ranks by place, the largest group first."""
    groups = group_by_key((where, rank) for rank, where in places)
    by_size = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0]))
    return tuple((where, tuple(ranks)) for where, ranks in by_size)


def _format_list(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _inflect_be(ranks: Sequence[int]) -> str:
    return "are" if len(ranks) > 1 else "is"


def _escape_braces(text: str) -> str:
    """Escape braces in a text that becomes part of a template for str.format."""
    return text.replace("{", "{{").replace("}", "}}")

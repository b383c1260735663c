"""Decisions about the programs of ranks: which rank is released, and when the job ends.

A rank is held at the first run of a program until all ranks of its mesh have reached it. A rank
that compiles, or is in another program, will reach it. A rank that is anywhere else may be waiting
for what the held program does, so the held ranks are released. But if every rank is held, or stands
still in a program, no rank will ever go on: some ranks have skipped a program in which the rest
are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from mcjax_launch.ranks import format_ranks, inflect_have
from mcjax_launch.runs.rank_run import RankRun, Stage
from mcjax_launch.runs.spmd import ProgramCode, RanProgram
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import StopReason, diverged, incomparable, unequal
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wire.value import Value

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.snapshots import InProgram, Stack

#: Seconds for which a rank is held until all ranks are polled, and between later polls.
POLL_AFTER_S, POLL_EVERY_S = scale_time(3.0), scale_time(7.0)
# Seconds until programs are compared even if some members' ranks are unknown.
_MEMBERS_S = scale_time(10.0)
# Seconds until a held rank is released if another rank is in no program; and in any case.
_HOLD_S, _LONGEST_HOLD_S = scale_time(10.0), scale_time(100.0)
# Share of a processor that a rank may use and still count as standing still.
_MOST_IDLE = 0.01
# Seconds after a divergence in which other ranks may show which side they are on.
_SETTLING_S = 1.0
# Seconds in which ranks may send the code of programs, which may be long.
_LONGEST_SHOW_S = 10.0


class Say(Value):
    """Decision to print a line for the user."""

    text: str


class PollRanks(Value):
    """Decision to ask all hosts for the ranks' usage and stacks; call `on_stacks` with them."""


class Release(Value):
    """Decision that these ranks may run the program with this fingerprint."""

    fingerprint: str
    ranks: frozenset[int]


class ShowCode(Value):
    """Decision to have a rank show the code of the program at which it is held."""

    fingerprint: str
    rank: int


class Diverged(Value):
    """Decision to end the job. `is_settled`: True if no more facts will become known."""

    stop: StopReason
    is_settled: bool


Decision = Say | PollRanks | Release | ShowCode | Diverged


class SpmdWatch:
    """Watch over the programs at which ranks are held; `launcher` carries out its decisions.

    Times are in time.monotonic's seconds. Methods return decisions.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._seen: object = None
        # By the fingerprint of a program: since when ranks are held at it.
        self._held_since: dict[str, float] = {}
        self._poll_at: float | None = None
        self._asked_at = 0.0
        # By rank: the position at the latest poll, if in a program; and the time of that poll.
        self._positions: dict[int, InProgram | None] = {}
        self._polled_at = 0.0
        self._diverged_at: float | None = None
        self._is_over = False
        self._in_compilers: list[int] = []  # ranks that count as held in a compilation

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire` at the latest."""
        if self._diverged_at is not None and not self._is_over:
            shown = self._shown
            return self._diverged_at + (_SETTLING_S if shown else _LONGEST_SHOW_S)
        times = [] if self._state.ending else [self._poll_at, self._judges_at]
        return min((at for at in times if at is not None), default=None)

    @property
    def _judges_at(self) -> float | None:
        since = self._state.unjudged_since
        return None if since is None else self._move_past_pause(since) + _MEMBERS_S

    def _move_past_pause(self, since: float) -> float:
        """Return a start of waiting, moved after the job's latest pause (debugging, suspension)."""
        return max(since, self._state.pause.ended_at)

    def expire(self, now: float) -> list[Decision]:
        """Return the decisions that follow from the facts known now."""
        decisions: list[Decision] = []
        if not self._state.ending and not self._state.differs:
            decisions += self._watch(now)
        if self._state.programs.checksums.unequal is None:
            released = self._state.pop_released().items()
            decisions += [Release(program, frozenset(ranks)) for program, ranks in released]
        return decisions + self._judge(now)

    # --- ranks that are held ---

    def _watch(self, now: float) -> list[Decision]:
        if (at := self._judges_at) is not None and now >= at:
            self._state.compare_pending(force=True)
        programs = self._state.programs
        if self._seen != (programs, programs.count):
            self._seen = programs, programs.count
            self._update(now)
        elif self._poll_at is None and any(self._compilers):
            self._poll_at = now + POLL_AFTER_S
        if self._poll_at is None or now < self._poll_at:
            return []
        self._asked_at, self._poll_at = now, now + POLL_EVERY_S
        return [PollRanks()]

    def _update(self, now: float) -> None:
        """Record the programs at which ranks are held now."""
        before, held = self._held_since, self._state.programs.list_held_programs()
        fingerprints = [program.fingerprint for program, _, _ in held]
        self._held_since = {known: before.get(known, now) for known in fingerprints}
        if not self._held_since and not any(self._compilers):
            self._poll_at, self._positions = None, {}
        elif self._poll_at is None:
            self._poll_at = now + POLL_AFTER_S

    def on_stacks(self, stacks: Collection[Stack], now: float) -> list[Decision]:
        """Return decisions after a poll: some held ranks may have to be released."""
        from mcjax_launch.diagnosis.snapshots import make_snapshots

        state, programs = self._state, self._state.programs
        if state.ending or state.differs:
            return []
        if now > self._asked_at + POLL_EVERY_S or self._polled_at < state.pause.ended_at:
            self._positions = {}
        before, since = self._positions, self._polled_at
        seen = make_snapshots(state, stacks)
        # Ranks of a host whose answer is late keep their earlier positions.
        positions = {**before, **{rank: stack.in_program for rank, stack in seen.items()}}
        for run in self._compilers:
            stack = seen.get(run.process_id)
            reads = stack is not None and stack.waits_for_files
            positions[run.process_id] = None if reads else self._get_compiler_position(run)
        self._positions, self._polled_at = positions, now
        decisions: list[Decision] = []
        for program, there, missing in programs.list_held_programs():
            waited = now - self._move_past_pause(self._held_since.get(program.fingerprint, now))
            # A stack dumped at the wrong moment may not show that its rank is in a program.
            were = {rank for rank in missing if positions.get(rank) or before.get(rank)}
            coming = all(rank in were or self._compiles(rank) for rank in missing)
            if waited >= _LONGEST_HOLD_S or (waited >= _HOLD_S and not coming):
                decisions.append(Say(self._format_wait(program, there, missing, waited)))
                programs.release(program)
        stays = {
            rank
            for rank, position in positions.items()
            if position and position == before.get(rank)
        }
        stands_still = self._are_stuck(stays, since)
        if stands_still:
            self._mark_compiling_as_held(positions)
        self._update(now)
        late = {rank for rank, stack in seen.items() if stack.is_in_first_run}
        stuck = self._find_stuck_program(positions, late)
        if stuck is not None and stands_still and programs.divergence is None:
            inside = {
                rank: position.program for rank in stuck.ranks if (position := positions.get(rank))
            }
            programs.record_skip(stuck, {rank: p for rank, p in inside.items() if p is not None})
        return decisions + self.expire(now)

    @property
    def _compilers(self) -> Iterator[RankRun]:
        """Ranks that compile a program that spans processes."""
        return (run for run in self._state.running if run.compilations.program is not None)

    def _get_compiler_position(self, run: RankRun) -> InProgram | None:
        """Return the program that a rank compiles, as a position where it may wait for ranks."""
        from mcjax_launch.diagnosis.snapshots import InProgram

        program, latest = run.compilations.program, run.compilations.latest
        if program is None or latest is None or latest.name != program.name:
            return None  # meanwhile it compiles a program that does not span processes
        ranks = self._state.find_members(run, program.platform, program.processes)
        ran = self._state.programs.intern_program(RanProgram.from_hook(program, ranks))
        return InProgram(f"in the compilation of {ran.title} at {ran.where}", ran)

    def _mark_compiling_as_held(self, positions: Mapping[int, InProgram | None]) -> None:
        """Treat compiling ranks as held if other ranks will not reach their compilations."""
        programs = self._state.programs
        at: dict[int, set[RanProgram | None]] = {}
        for rank, position in positions.items():
            at[rank] = {position.program} if position is not None else set()
        for held, there, _ in programs.list_held_programs():
            for rank in there:
                at.setdefault(rank, set()).add(held)

        def is_apart(rank: int, program: RanProgram) -> bool:
            known = [other for other in at.get(rank, ()) if other is not None]
            here = any(other.fingerprint == program.fingerprint for other in known)
            return not here and (not known or any(other.meets(program) for other in known))

        for run in list(self._compilers):
            position = positions.get(run.process_id)
            program = None if position is None else position.program
            if program is not None and any(is_apart(rank, program) for rank in program.ranks):
                programs.record_run(run.process_id, program, held=True)
                self._in_compilers.append(run.process_id)

    def _find_stuck_program(
        self, positions: Mapping[int, InProgram | None], late: Collection[int]
    ) -> RanProgram | None:
        """Return a program that holds ranks while a missing rank is in one on the same devices.

        A rank in a program on other devices may reach it in another thread. Ranks that are `late`,
        in the first run of a program that the other ranks have run too, will reach it, or JAX
        itself hangs.
        """
        held = self._state.programs.list_held_programs()

        def is_in(rank: int, program: RanProgram) -> bool:
            if rank in late and self._state.programs.is_behind(rank, program):
                return False
            at = [other for other, there, _ in held if rank in there]
            position = positions.get(rank)
            if not at and position is not None:
                return position.program is None or position.program.meets(program)
            return any(other.meets(program) for other in at)

        return next((p for p, _, missing in held if any(is_in(r, p) for r in missing)), None)

    def _are_stuck(self, stays: Collection[int], since: float) -> bool:
        """Return whether no rank has moved since the latest poll, nor ever will."""
        gone = Stage.LEAVING, Stage.LEFT
        runs = [run for run in self._state.running if run.stage not in gone]
        return not self._state.has_others and all(
            run.process_id in stays and self._is_idle(run, since) for run in runs
        )

    def _is_idle(self, run: RankRun, since: float) -> bool:
        """Return whether a rank has used no processor since the time `since`."""
        compiles, samples = run.compilations.program is not None, run.usage.samples
        then = next((sample for sample in reversed(samples) if sample.at <= since), None)
        if then is None or (self._compiles(run.process_id) and not compiles):
            return False
        used = samples[-1]
        if used.at < self._asked_at or (run.compilations.on_accelerator and not compiles):
            return False  # its host's sample is late, or its processor time says nothing
        return used.cpu_s - then.cpu_s <= _MOST_IDLE * (used.at - then.at)

    def _compiles(self, rank: int) -> bool:
        return self._state.ranks[rank].compilations.under_way > 0

    def _format_wait(
        self,
        program: RanProgram,
        there: Collection[int],
        missing: Collection[int],
        waited: float,
    ) -> str:
        name = f"#{self._state.programs.compute_ordinal(program)} {program.title}"
        at = f" at {program.where}" if program.where else ""
        run = "runs" if len(there) == 1 else "run"
        return (
            f"{format_ranks(there)} {inflect_have(there)} waited {waited:.0f} s "
            f"before program {name}{at} for {format_ranks(missing)}, and now {run} it unverified"
        )

    # --- ranks that diverge ---

    def _judge(self, now: float) -> list[Decision]:
        """Return the decision to end a job whose ranks diverge, or cannot be compared."""
        state = self._state
        if self._is_over:
            return []
        if why := next((run.incomparable for run in state.ranks.values() if run.incomparable), ""):
            self._is_over = True
            return [Diverged(incomparable(why), is_settled=True)]
        if not state.differs:
            return []
        decisions: list[Decision] = [*self._request_codes()]
        is_new = self._diverged_at is None
        if self._diverged_at is None:
            self._diverged_at = now
        settled = self._settled or now >= self._diverged_at + _SETTLING_S
        shown = self._shown or now >= self._diverged_at + _LONGEST_SHOW_S
        self._is_over = settled and shown
        if is_new or self._is_over:  # at first as a reason, at last to end the job
            decisions.append(Diverged(self._make_stop_reason(), self._is_over))
        return decisions

    def _make_stop_reason(self) -> StopReason:
        from mcjax_launch.diagnosis.spmd import describe_divergence, describe_unequal_argument

        programs = self._state.programs
        if programs.divergence is None:
            return unequal(describe_unequal_argument(programs))
        lines = describe_divergence(programs)
        if self._in_compilers:
            waits = "waits" if len(self._in_compilers) == 1 else "wait"
            lines.append(f"{format_ranks(self._in_compilers)} {waits} in its compilation")
        return diverged(lines)

    @property
    def _settled(self) -> bool:
        """True if all ranks concerned have shown which side they are on."""
        programs = self._state.programs
        return programs.checksums.is_settled if programs.divergence is None else programs.is_settled

    @property
    def _shown(self) -> bool:
        """True if all requested code has arrived."""
        programs = self._state.programs
        if programs.divergence is not None:
            return programs.has_code
        return all(code.complete for code in programs.codes.values())

    def _request_codes(self) -> list[ShowCode]:
        """Return requests for the code of each diverging program, by a rank held at it."""
        programs = self._state.programs
        if programs.divergence is not None:
            concerned = [(side.program, side.ranks) for side in programs.group_diverged_ranks()]
        elif (unequal := programs.checksums.unequal) is not None:
            concerned = [(unequal.program, unequal.groups[0])]
        wanted = []
        for program, ranks in concerned:
            if program is not None and programs.is_held(program):
                fingerprint = program.fingerprint
                if fingerprint not in programs.codes:
                    programs.codes[fingerprint] = ProgramCode()
                    wanted.append(ShowCode(fingerprint, ranks[0]))
        return wanted

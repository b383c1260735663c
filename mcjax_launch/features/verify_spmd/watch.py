"""The verdict on the programs of ranks: who may run on, who is held, and when the job ends.

A rank is held at the first run of a program until all ranks of its mesh have come to it. Whoever
compiles, or is in another program, will come. Whoever is anywhere else may wait for what the held
program does, so that is let go. But once every rank is held, or stands still in a program, none of
them ever goes on: some have skipped a program which the others are in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from mcjax_launch.kernel.wire.timers import scaled
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import have, these_ranks
from mcjax_launch.runs.rank_run import RankRun, Stage
from mcjax_launch.runs.spmd import Code, RanProgram
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import StopReason, diverged, incomparable, unequal

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.sightings import InProgram, Stack

#: When a rank has been held for so many seconds, all are asked where they are, and then again.
LOOK_AFTER_S, LOOK_EVERY_S = scaled(3.0), scaled(7.0)
# Programs are judged by then though it is not known of all members which ranks they are.
_MEMBERS_S = scaled(10.0)
# A rank is let go after so long if another one is in no program; in any case after the longest.
_HOLD_S, _LONGEST_HOLD_S = scaled(10.0), scaled(100.0)
# A rank that stands still uses no more of a processor than this.
_MOST_IDLE = 0.01
# When ranks diverge, the others get so many seconds to show which side they are on.
_SETTLING_S = 1.0
# And so many to show the code of programs, which may be long.
_LONGEST_SHOW_S = 10.0


class Say(Value):
    """A line for the user."""

    text: str


class LookAtRanks(Value):
    """Have all hosts report what their ranks use, and where these are; then call `stacks_came`."""


class Release(Value):
    """Ranks may run the program with this fingerprint."""

    fingerprint: str
    ranks: frozenset[int]


class ShowCode(Value):
    """Have a rank show the code of the program with this fingerprint, at which it is held."""

    fingerprint: str
    rank: int


class Diverged(Value):
    """There is a reason to end the job. `is_settled`: as much is known of it as ever will be."""

    stop: StopReason
    is_settled: bool


Decision = Say | LookAtRanks | Release | ShowCode | Diverged


class SpmdWatch:
    """Watches over the programs that ranks are held at; `launcher` does what it says.

    Times are in time.monotonic's seconds. Methods return what is to be done.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._seen: object = None
        # By the fingerprints of programs, since when ranks are held at them.
        self._held_since: dict[str, float] = {}
        self._look_at: float | None = None
        self._asked_at = 0.0
        # By ranks, where they were at the last look, if at the gate or in programs; and when.
        self._places: dict[int, InProgram | None] = {}
        self._looked_at = 0.0
        self._diverged_at: float | None = None
        self._is_over = False
        self._in_compilers: list[int] = []  # where they are as if held

    @property
    def deadline(self) -> float | None:
        """When to call `expire` at the latest."""
        if self._diverged_at is not None and not self._is_over:
            shown = self._shown
            return self._diverged_at + (_SETTLING_S if shown else _LONGEST_SHOW_S)
        times = [] if self._state.ending else [self._look_at, self._judges_at]
        return min((at for at in times if at is not None), default=None)

    @property
    def _judges_at(self) -> float | None:
        since = self._state.unjudged_since
        return None if since is None else self._counted(since) + _MEMBERS_S

    def _counted(self, since: float) -> float:
        """Since when such a time counts: not while the job was debugged or the launcher stopped."""
        return max(since, self._state.pause.ended_at)

    def expire(self, now: float) -> list[Decision]:
        """What is to be done after what has become known meanwhile."""
        decisions: list[Decision] = []
        if not self._state.ending and not self._state.differs:
            decisions += self._watch(now)
        if self._state.programs.copies.unequal is None:
            decisions += self._released()
        return decisions + self._judge(now)

    def _released(self) -> list[Decision]:
        released = self._state.take_released()
        return [Release(program, frozenset(ranks)) for program, ranks in released.items()]

    # --- ranks that are held ---

    def _watch(self, now: float) -> list[Decision]:
        if (at := self._judges_at) is not None and now >= at:
            self._state.settle(give_up=True)
        programs = self._state.programs
        if self._seen != (programs, programs.count):
            self._seen = programs, programs.count
            self._update(now)
        elif self._look_at is None and any(self._compilers):
            self._look_at = now + LOOK_AFTER_S
        if self._look_at is None or now < self._look_at:
            return []
        self._asked_at, self._look_at = now, now + LOOK_EVERY_S
        return [LookAtRanks()]

    def _update(self, now: float) -> None:
        """Note which programs ranks are held at by now."""
        held = (program.fingerprint for program, _, _ in self._state.programs.held())
        self._held_since = {one: self._held_since.get(one, now) for one in held}
        if not self._held_since and not any(self._compilers):
            self._look_at, self._places = None, {}
        elif self._look_at is None:
            self._look_at = now + LOOK_AFTER_S

    def stacks_came(self, stacks: Collection[Stack], now: float) -> list[Decision]:
        """The hosts have answered where their ranks are: some that are held may have to go on."""
        from mcjax_launch.diagnosis.sightings import sightings

        state, programs = self._state, self._state.programs
        if state.ending or state.differs:
            return []
        if now > self._asked_at + LOOK_EVERY_S or self._looked_at < state.pause.ended_at:
            self._places = {}
        before, since = self._places, self._looked_at
        seen = sightings(state, stacks)
        # A host that is late with its answer leaves its ranks where they were.
        places = {**before, **{rank: one.in_program for rank, one in seen.items()}}
        for run in self._compilers:
            one = seen.get(run.process_id)
            reads = one is not None and one.waits_for_files
            places[run.process_id] = None if reads else self._at_compiler(run)
        self._places, self._looked_at = places, now
        decisions: list[Decision] = []
        for program, there, missing in programs.held():
            waited = now - self._counted(self._held_since.get(program.fingerprint, now))
            # A stack that is taken in the wrong moment does not show that its rank is in a program.
            were = {rank for rank in missing if places.get(rank) or before.get(rank)}
            coming = all(rank in were or self._compiles(rank) for rank in missing)
            if waited >= _LONGEST_HOLD_S or (waited >= _HOLD_S and not coming):
                decisions.append(Say(self._note(program, there, missing, waited)))
                programs.release(program)
        stays = {rank for rank, place in places.items() if place and place == before.get(rank)}
        stands_still = self._stand_still(stays, since)
        if stands_still:
            self._wait_in_compilers(places)
        self._update(now)
        late = {rank for rank, one in seen.items() if one.is_in_first_run}
        stuck = self._stuck(places, late)
        if stuck is not None and stands_still and programs.divergence is None:
            inside = {rank: place.program for rank in stuck.ranks if (place := places.get(rank))}
            programs.skipped(stuck, {rank: p for rank, p in inside.items() if p is not None})
        return decisions + self.expire(now)

    @property
    def _compilers(self) -> Iterator[RankRun]:
        """The ranks that compile a program that spans processes."""
        return (run for run in self._state.running if run.compilations.program is not None)

    def _at_compiler(self, run: RankRun) -> InProgram | None:
        """What a rank compiles, as a place where it may wait for others."""
        from mcjax_launch.diagnosis.sightings import InProgram

        program, latest = run.compilations.program, run.compilations.latest
        if program is None or latest is None or latest.name != program.name:
            return None  # it compiles one of its own meanwhile
        ranks = self._state.members_of(run, program.platform, program.processes)
        ran = self._state.programs.known(RanProgram.from_hook(program, ranks))
        return InProgram(f"in the compilation of {ran.title} at {ran.where}", ran)

    def _wait_in_compilers(self, places: Mapping[int, InProgram | None]) -> None:
        """All stand still: ranks in compilations to which others will not come are as if held."""
        programs = self._state.programs
        at: dict[int, set[RanProgram | None]] = {}
        for rank, place in places.items():
            at[rank] = {place.program} if place is not None else set()
        for held, there, _ in programs.held():
            for rank in there:
                at.setdefault(rank, set()).add(held)

        def is_apart(rank: int, program: RanProgram) -> bool:
            known = [one for one in at.get(rank, ()) if one is not None]
            here = any(one.fingerprint == program.fingerprint for one in known)
            return not here and (not known or any(one.meets(program) for one in known))

        for run in list(self._compilers):
            place = places.get(run.process_id)
            program = None if place is None else place.program
            if program is not None and any(is_apart(rank, program) for rank in program.ranks):
                programs.ran(run.process_id, program, held=True)
                self._in_compilers.append(run.process_id)

    def _stuck(
        self, places: Mapping[int, InProgram | None], late: Collection[int]
    ) -> RanProgram | None:
        """A program at which ranks are held, and another one is in a program on the same devices.

        Whoever is in one on other devices may come to this in another thread. Those who are `late`,
        in the first run of one that the others have run too, will come, or JAX itself hangs.
        """
        held = self._state.programs.held()

        def is_in(rank: int, program: RanProgram) -> bool:
            if rank in late and self._state.programs.is_behind(rank, program):
                return False
            at = [other for other, there, _ in held if rank in there]
            place = places.get(rank)
            if not at and place is not None:
                return place.program is None or place.program.meets(program)
            return any(other.meets(program) for other in at)

        return next((p for p, _, missing in held if any(is_in(r, p) for r in missing)), None)

    def _stand_still(self, stays: Collection[int], since: float) -> bool:
        """Whether no rank has moved since the last look, nor will: nobody else takes part."""
        gone = Stage.LEAVING, Stage.LEFT
        runs = [run for run in self._state.running if run.stage not in gone]
        return not self._state.has_others and all(
            run.process_id in stays and self._is_idle(run, since) for run in runs
        )

    def _is_idle(self, run: RankRun, since: float) -> bool:
        """Whether a rank has used no processor since then."""
        compiles, samples = run.compilations.program is not None, run.usage.samples
        then = next((sample for sample in reversed(samples) if sample.at <= since), None)
        if then is None or (self._compiles(run.process_id) and not compiles):
            return False
        used = samples[-1]
        if used.at < self._asked_at or (run.compilations.on_accelerator and not compiles):
            return False  # its host is late, or its processor says nothing
        return used.cpu_s - then.cpu_s <= _MOST_IDLE * (used.at - then.at)

    def _compiles(self, rank: int) -> bool:
        return self._state.ranks[rank].compilations.under_way > 0

    def _note(
        self,
        program: RanProgram,
        there: Collection[int],
        missing: Collection[int],
        waited: float,
    ) -> str:
        name = f"#{self._state.programs.number(program)} {program.title}"
        at = f" at {program.where}" if program.where else ""
        run = "runs" if len(there) == 1 else "run"
        return (
            f"{these_ranks(there)} {have(there)} waited {waited:.0f} s before program {name}{at} "
            f"for {these_ranks(missing)}, and now {run} it unverified"
        )

    # --- ranks that diverge ---

    def _judge(self, now: float) -> list[Decision]:
        """The reason to end a job whose ranks diverge, or cannot be compared."""
        state = self._state
        if self._is_over:
            return []
        if why := next((run.incomparable for run in state.ranks.values() if run.incomparable), ""):
            self._is_over = True
            return [Diverged(incomparable(why), is_settled=True)]
        if not state.differs:
            return []
        decisions: list[Decision] = [*self._code_to_show()]
        is_new = self._diverged_at is None
        if self._diverged_at is None:
            self._diverged_at = now
        settled = self._settled or now >= self._diverged_at + _SETTLING_S
        shown = self._shown or now >= self._diverged_at + _LONGEST_SHOW_S
        self._is_over = settled and shown
        if is_new or self._is_over:  # it counts from its first moment on
            decisions.append(Diverged(self._reason(), self._is_over))
        return decisions

    def _reason(self) -> StopReason:
        from mcjax_launch.diagnosis.spmd import divergence_lines, unequal_lines

        programs = self._state.programs
        if programs.divergence is None:
            return unequal(unequal_lines(programs))
        lines = divergence_lines(programs)
        if self._in_compilers:
            waits = "waits" if len(self._in_compilers) == 1 else "wait"
            lines.append(f"{these_ranks(self._in_compilers)} {waits} in its compilation")
        return diverged(lines)

    @property
    def _settled(self) -> bool:
        """Whether all ranks have come that it concerns."""
        programs = self._state.programs
        return programs.copies.settled if programs.divergence is None else programs.settled

    @property
    def _shown(self) -> bool:
        """Whether the code that has been asked for has come."""
        programs = self._state.programs
        if programs.divergence is not None:
            return programs.shown
        return all(code.complete for code in programs.codes.values())

    def _code_to_show(self) -> list[ShowCode]:
        """Of each program in which ranks diverge, one rank that is held at it, to show its code."""
        programs = self._state.programs
        if programs.divergence is not None:
            concerned = [(side.program, side.ranks) for side in programs.sides()]
        elif (unequal := programs.copies.unequal) is not None:
            concerned = [(unequal.program, unequal.groups[0])]
        wanted = []
        for program, ranks in concerned:
            if program is not None and programs.is_held(program):
                fingerprint = program.fingerprint
                if fingerprint not in programs.codes:
                    programs.codes[fingerprint] = Code()
                    wanted.append(ShowCode(fingerprint, ranks[0]))
        return wanted

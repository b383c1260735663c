"""Programs that some ranks have not reached: which ranks are slow, and which have passed them by.

A rank that is slow will get there. One that runs programs again which it had run before may be on
its way too, for devices lag behind the work they are given, but not by much: no rank is given more
than some 32 programs whose results it does not have, and results that it needs others for do not
come before they run the program too. So a rank has passed a program by when it has run others more
often than that, each of which needs a rank that has reached the program.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from mcjax_launch.ranks import have, these_ranks
from mcjax_launch.runs.rank_run import Sample
from mcjax_launch.runs.spmd import Code, Comparison, Program, Rerun
from mcjax_launch.runs.state import RunState

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.stacks import Stack
    from mcjax_launch.diagnosis.waits import InProgram

#: For so many seconds a rank may simply be slower than others.
LOOK_AFTER_S = 2.0
#: After that it is asked which programs it still runs, at most once in so many seconds.
LOOK_EVERY_S = 0.25
# The longer the wait, the less often: once in a hundredth of it.
_LOOKS = 100
#: A rank that has run others this many times has passed the program by.
MOST_LAG = 40
_NOTED_AFTER_S = 10.0
# So often the others are asked where they are, if in a program: for as long as it may be their
# turn. After so long in which all ranks stand still it is not: each waits for the other.
_DOUBTED_EVERY_S = 5.0
_STILL_S = 15.0
# In which each uses no more of a processor than this.
_MOST_IDLE = 0.02
# A rank that is held at a program until the others reach it is let go then; and after so long
# even if the others still compile, or are in programs that they may not leave without it.
_LONGEST_HOLD_S = 100.0
# So many places are shown.
_MOST_PLACES = 2


class _Wait:
    """Some ranks wait in a program for its other ranks."""

    def __init__(self, program: Program, at: float) -> None:
        self.program = program
        self.since = at
        self.noted = False
        # Of the others, while the ranks that are there are held: when they were last asked where
        # they are, since when all have stood still in programs, and what they have used by then.
        self.asked_at = -math.inf
        self.still_since: float | None = None
        self.used: dict[int, Sample] = {}
        self.inside: dict[int, InProgram] = {}
        self.there: Collection[int] = ()
        self.missing: Collection[int] = ()
        # By a missing rank and one that is there, which it needed for what it ran meanwhile:
        self._last_request: dict[tuple[int, int], int] = {}
        self._lag: Counter[tuple[int, int]] = Counter()
        self._reruns: dict[int, dict[str, Program]] = {}

    def next_at(self, now: float) -> float:
        """When to look again."""
        waited = now - self.since
        if waited < LOOK_AFTER_S:
            return self.since + LOOK_AFTER_S
        return now + max(LOOK_EVERY_S, waited / _LOOKS)

    def saw(self, rerun: Rerun) -> None:
        """A rank has run a program again."""
        if rerun.rank not in self.missing:
            return
        for other in rerun.partners.intersection(self.there):
            pair = rerun.rank, other
            if rerun.request > self._last_request.get(pair, 0):  # one program counts per request
                self._last_request[pair] = rerun.request
                self._lag[pair] += 1
            programs = self._reruns.setdefault(rerun.rank, {})
            programs.setdefault(rerun.program.fingerprint, rerun.program)

    def update(self, there: Collection[int], missing: Collection[int]) -> None:
        """These ranks are there by now, and those are missing."""
        self.there, self.missing = there, missing
        self._lag = Counter({p: n for p, n in self._lag.items() if p[0] in missing})
        self._reruns = {rank: own for rank, own in self._reruns.items() if rank in missing}

    @property
    def over(self) -> bool:
        """Whether a rank will never get there."""
        return any(count >= MOST_LAG for count in self._lag.values())

    @property
    def instead(self) -> dict[int, Program]:
        """What each missing rank ran meanwhile: the same program for all, if there is one."""
        counts = Counter(fingerprint for own in self._reruns.values() for fingerprint in own)
        common = [fingerprint for fingerprint, _ in counts.most_common()]
        return {
            rank: own[next(fingerprint for fingerprint in common if fingerprint in own)]
            for rank, own in self._reruns.items()
        }


def _is_idle(before: Sample, after: Sample) -> bool:
    """Whether a rank has used next to nothing: on a machine with too much to do it gets little."""
    return after.cpu_s - before.cpu_s <= _MOST_IDLE * (after.at - before.at)


class SpmdWatch:
    """Watches over the programs that ranks wait in, as long as there are any.

    Times are in time.monotonic's seconds.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._waits: dict[str, _Wait] = {}
        self._seen: tuple[Comparison | None, int] = None, 0
        self._looked_at: float | None = None
        self._notes: list[str] = []
        self._to_ask: set[int] = set()
        self._wants_stacks = False

    @property
    def deadline(self) -> float | None:
        """When to call `expire` again; it does nothing before."""
        if self._state.ending:
            return None
        times = [self._look_at, self._give_up_at]
        return min((at for at in times if at is not None), default=None)

    @property
    def _give_up_at(self) -> float | None:
        """When programs are judged though it is not known of all members which ranks they are."""
        since = self._state.unjudged_since
        return None if since is None else since + _NOTED_AFTER_S

    @property
    def _look_at(self) -> float | None:
        """When to look again who is there."""
        looked_at = self._looked_at
        if self._waits and looked_at is not None:
            return min(wait.next_at(looked_at) for wait in self._waits.values())
        programs = self._state.programs
        if programs.count and self._seen != (programs, programs.count):
            return 0.0 if looked_at is None else looked_at + LOOK_AFTER_S
        return None

    def expire(self, now: float) -> None:
        """Look which ranks are there and which are not; if one never will be, they diverge."""
        deadline = self.deadline
        programs = self._state.programs
        if deadline is None or now < deadline or programs.divergence is not None:
            return
        if (give_up_at := self._give_up_at) is not None and now >= give_up_at:
            self._state.settle(give_up=True)
        if (look_at := self._look_at) is None or now < look_at:
            return
        self._looked_at, self._seen = now, (programs, programs.count)
        reruns, programs.reruns = programs.reruns, []
        before, self._waits = self._waits, {}
        for program, there, missing in programs.waiting():
            fingerprint = program.fingerprint
            wait = self._waits[fingerprint] = before.get(fingerprint) or _Wait(program, now)
            for rerun in reruns:
                wait.saw(rerun)
            wait.update(there, missing)
            self._look(wait, now)
            if wait.over:
                programs.passed_by(program, wait.instead)
                return

    def _look(self, wait: _Wait, now: float) -> None:
        waited = now - wait.since
        if waited >= LOOK_AFTER_S and not wait.inside:
            self._to_ask |= set(wait.missing)
        patient = self._compile(wait.missing) and waited < _LONGEST_HOLD_S
        if waited < _NOTED_AFTER_S or wait.noted or patient:
            return
        if waited >= _LONGEST_HOLD_S or not self._state.programs.is_held(wait.program):
            self._let_go(wait, now)
        elif now >= wait.asked_at + _DOUBTED_EVERY_S:
            wait.asked_at = now
            self._wants_stacks = True

    def _let_go(self, wait: _Wait, now: float) -> None:
        wait.noted = True
        self._notes.append(self._note(wait, now - wait.since))
        self._state.programs.release(wait.program)

    # --- ranks that are held, while the others are in programs ---

    def take_stack_request(self) -> bool:
        """Whether it is wanted now what all ranks use, and then where they are."""
        wanted, self._wants_stacks = self._wants_stacks, False
        return wanted

    def stacks_came(self, stacks: Collection["Stack"], now: float) -> None:
        """The hosts have answered where their ranks are: some that are held may have to go on.

        Not while the others are in programs: they may have to run these too, and will get there.
        If nobody moves any more, they never will.
        """
        from mcjax_launch.diagnosis.waits import in_programs

        programs = self._state.programs
        for wait in self._waits.values():
            if wait.noted or wait.asked_at < 0 or programs.divergence is not None:
                continue
            found = in_programs(self._state, stacks, wait.missing)
            inside = {rank: place for rank, place in found.items() if place is not None}
            is_complete = len(found) == len(wait.missing)  # a busy host may be late
            if len(inside) < len(found) or not (is_complete or wait.inside):
                self._let_go(wait, now)
                continue
            if not wait.inside:
                self._notes.append(self._note(wait, now - wait.since, inside))
            if is_complete:
                self._keep(wait, inside, now)
            if wait.still_since is not None and now - wait.still_since >= _STILL_S:
                known = {rank: place.program for rank, place in inside.items()}
                instead = {rank: program for rank, program in known.items() if program}
                programs.passed_by(wait.program, instead)

    def _keep(self, wait: _Wait, inside: dict[int, "InProgram"], now: float) -> None:
        """Remember where the others are, and since when nothing of them has moved."""
        before, wait.inside = wait.inside, inside
        runs = [self._state.ranks[rank] for rank in (*wait.there, *wait.missing)]
        samples = {run.process_id: run.usage.samples[-1] for run in runs if run.usage.samples}
        if len(samples) < len(runs) or any(one.at < wait.asked_at for one in samples.values()):
            return  # the host is late
        then, wait.used = wait.used, samples
        idle = all(rank in then and _is_idle(then[rank], one) for rank, one in samples.items())
        on_cpu = all(run.compilations.platform in ("", "cpu") for run in runs)
        if not (idle and on_cpu and inside == before):
            wait.still_since = now

    def _compile(self, ranks: Iterable[int]) -> bool:
        return all(self._state.ranks[rank].compilations.under_way > 0 for rank in ranks)

    def _note(
        self, wait: _Wait, waited: float, inside: Mapping[int, "InProgram"] | None = None
    ) -> str:
        """What is said of a wait; `inside`: where the others are, who are waited for."""
        program = wait.program
        name = f"#{self._state.programs.number(program)} {program.title}"
        at = f" at {program.where}" if program.where else ""
        if inside is not None:
            groups: dict[str, list[int]] = {}
            for rank, place in inside.items():
                groups.setdefault(place.where, []).append(rank)
            places = [f"{these_ranks(ranks)}, {where}" for where, ranks in groups.items()]
            return (
                f"{these_ranks(wait.there)} {have(wait.there)} waited {waited:.0f} s before "
                f"program {name}{at} for {' and for '.join(places[:_MOST_PLACES])}"
            )
        if self._state.programs.is_held(program):
            run = "runs" if len(wait.there) == 1 else "run"
            return (
                f"{these_ranks(wait.there)} {have(wait.there)} waited {waited:.0f} s before "
                f"program {name}{at} for {these_ranks(wait.missing)}, and now {run} it unverified"
            )
        return (
            f"{these_ranks(wait.there)} {have(wait.there)} waited {waited:.0f} s in program "
            f"{name}{at}, which {these_ranks(wait.missing)} {have(wait.missing)} not reached"
        )

    def take_notes(self) -> list[str]:
        """Lines that have not been printed yet."""
        notes, self._notes = self._notes, []
        return notes

    def take_released(self) -> dict[str, set[int]]:
        """By the fingerprint of a program: ranks that may run it now."""
        return self._state.take_released()

    def take_programs_to_show(self) -> list[tuple[str, int]]:
        """Programs in which ranks diverge, each with one that is held at it, to show its code."""
        programs = self._state.programs
        if programs.divergence is None:
            return []
        wanted = []
        for side in programs.sides():
            if side.program is not None and programs.is_held(side.program):
                fingerprint = side.program.fingerprint
                if fingerprint not in programs.codes:
                    programs.codes[fingerprint] = Code()
                    wanted.append((fingerprint, side.ranks[0]))
        return wanted

    def take_ranks_to_ask(self) -> list[int]:
        """The ranks that are to be asked now which programs they still run."""
        ranks, self._to_ask = sorted(self._to_ask), set()
        return ranks

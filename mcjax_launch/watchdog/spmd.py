"""Programs that some ranks have not come to: which are slow, and which have gone on; pure.

A rank that is slow will come. One that runs programs again which it had run before may be on its
way too, for devices lag behind what they are given, but not for long: no rank is given more than
some 32 programs whose results it does not have, and those that it needs others for, it does not
have before they run them too. So a rank has passed a program by when it has run others more often
than that, of which each needs a rank that has come to the program.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from mcjax_launch.ranks import have, these_ranks
from mcjax_launch.run.spmd import Comparison, Program, Rerun
from mcjax_launch.run.state import History

#: For so long ranks may simply be slower than others.
LOOK_AFTER_S = 2.0
#: So often, at most, they are asked then which programs they run still.
LOOK_EVERY_S = 0.25
# The longer it lasts the less often: at so many moments of what it has lasted so far.
_LOOKS = 100
#: Seen to run others so often, they have passed it by.
MOST_LAG = 40
_NOTED_AFTER_S = 10.0


class _Wait:
    """For the rest of its ranks in a program."""

    def __init__(self, program: Program, at: float) -> None:
        self.program = program
        self.since = at
        self.noted = False
        self.come: Collection[int] = ()
        self.missing: Collection[int] = ()
        # By a rank that has not come and one that has, which it needed for what it ran meanwhile:
        self._last_look: dict[tuple[int, int], int] = {}
        self._lag: Counter[tuple[int, int]] = Counter()
        self._reruns: dict[int, dict[str, Program]] = {}

    def next_at(self, now: float) -> float:
        """When to see to it again."""
        lasted = now - self.since
        if lasted < LOOK_AFTER_S:
            return self.since + LOOK_AFTER_S
        return now + max(LOOK_EVERY_S, lasted / _LOOKS)

    def saw(self, rerun: Rerun) -> None:
        """A rank has run a program again."""
        if rerun.rank not in self.missing:
            return
        for other in rerun.partners.intersection(self.come):
            pair = rerun.rank, other
            if rerun.look > self._last_look.get(pair, 0):  # one program counts for each look
                self._last_look[pair] = rerun.look
                self._lag[pair] += 1
            programs = self._reruns.setdefault(rerun.rank, {})
            programs.setdefault(rerun.program.fingerprint, rerun.program)

    def goes_on(self, come: Collection[int], missing: Collection[int]) -> None:
        """These have come by now, and those not."""
        self.come, self.missing = come, missing
        self._lag = Counter({p: n for p, n in self._lag.items() if p[0] in missing})
        self._reruns = {rank: own for rank, own in self._reruns.items() if rank in missing}

    @property
    def over(self) -> bool:
        """Whether a rank will not come any more."""
        return any(count >= MOST_LAG for count in self._lag.values())

    @property
    def instead(self) -> dict[int, Program]:
        """What each rank ran that has not come: one program for all, if there is one."""
        ran_by = Counter(mark for own in self._reruns.values() for mark in own)
        common = [mark for mark, _ in ran_by.most_common()]
        return {
            rank: own[next(mark for mark in common if mark in own)]
            for rank, own in self._reruns.items()
        }


class Overdue:
    """Watches over the programs that ranks wait in, as long as there are any."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._waits: dict[str, _Wait] = {}
        self._seen: tuple[Comparison | None, int] = None, 0
        self._looked_at = -LOOK_AFTER_S
        self._notes: list[str] = []
        self._asked: set[int] = set()

    @property
    def deadline(self) -> float | None:
        """When to call `check` again; nothing is done before."""
        if self._history.ending:
            return None
        if self._waits:
            return min(wait.next_at(self._looked_at) for wait in self._waits.values())
        programs = self._history.programs
        if programs.told and self._seen != (programs, programs.told):
            return self._looked_at + LOOK_AFTER_S
        return None

    def check(self, now: float) -> None:
        """See which ranks have come and which have gone on; then the programs have parted."""
        deadline = self.deadline
        programs = self._history.programs
        if deadline is None or now < deadline or programs.divergence is not None:
            return
        self._looked_at, self._seen = now, (programs, programs.told)
        reruns, programs.reruns = programs.reruns, []
        before, self._waits = self._waits, {}
        for program, come, missing in programs.waiting():
            mark = program.fingerprint
            wait = self._waits[mark] = before.get(mark) or _Wait(program, now)
            self._see_to(wait, come, missing, reruns, now)
            if wait.over:
                programs.went_on(program, wait.instead)
                return

    def _see_to(
        self,
        wait: _Wait,
        come: Collection[int],
        missing: Collection[int],
        reruns: Iterable[Rerun],
        now: float,
    ) -> None:
        for rerun in reruns:
            wait.saw(rerun)
        wait.goes_on(come, missing)
        if now - wait.since >= LOOK_AFTER_S:
            self._asked |= set(missing)
        if now - wait.since >= _NOTED_AFTER_S and not (wait.noted or self._compile(missing)):
            wait.noted = True
            self._notes.append(self._in_words(wait, now))

    def _compile(self, ranks: Iterable[int]) -> bool:
        return all(self._history.ranks[rank].compilations > 0 for rank in ranks)

    def _in_words(self, wait: _Wait, now: float) -> str:
        program = wait.program
        title = f"#{self._history.programs.number(program)} {program.title}"
        where = f" at {program.where}" if program.where else ""
        return (
            f"{these_ranks(wait.come)} came to program {title}{where} {now - wait.since:.0f} s "
            f"ago, to which {these_ranks(wait.missing)} {have(wait.missing)} not come"
        )

    def notes(self) -> list[str]:
        """What is worth saying, once."""
        found, self._notes = self._notes, []
        return found

    def asked(self) -> list[int]:
        """The ranks that are to be asked now which programs they run still."""
        found, self._asked = sorted(self._asked), set()
        return found

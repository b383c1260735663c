"""The announcer: it picks findings to print while a job runs, each once or as it lasts; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.view import Fact, Finding, Occasion, View
from mcjax_launch.kernel.wire import hook_messages as hook
from mcjax_launch.kernel.wire.messages import Exited, FromHook
from mcjax_launch.kernel.wire.timers import scaled

if TYPE_CHECKING:
    from mcjax_launch.runs.state import RunState

#: What lasts is said after so many seconds, and again after each doubling of them.
AFTER_S = scaled(30.0)
# Between two passes over the rules, for each rank: a fraction of what a pass may take.
_PAUSE_S = 5e-4
# With so few there is no pause: a call that fails at once is judged before its failure.
_FEW_RANKS = 50
# On what rules may depend; what else hooks report they see when something of this becomes known.
_FACTS: dict[type, Fact] = {
    hook.ImportedJax: Fact.JAX,
    hook.Compiling: Fact.JAX,
    hook.NotJoined: Fact.JAX,
    hook.Joining: Fact.CALL,
    hook.CalledBelow: Fact.BELOW,
    hook.Backend: Fact.BACKEND,
    hook.ProcessNumber: Fact.NUMBER,
    hook.Program: Fact.PROGRAM,
}


def next_time(lasted_s: float) -> float:
    """Return how long something has to last until it is said again."""
    seconds = AFTER_S
    while seconds <= lasted_s:
        seconds *= 2
    return seconds


class Announcer:
    """Asks the rules when something has become known, and remembers what has been said.

    Each pass over the rules costs more, the more ranks there are: with many ranks there are only a
    few passes in a second, however much becomes known in between.

    Args:
        state: of the run.

    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        # How long a finding has to last to be said again, by its key; and all that has been said.
        self._said: dict[object, float] = {}
        self._lines: set[str] = set()
        self._facts = self._later = Fact.NOTHING
        self._passed_at = -math.inf
        self._later_at = math.inf
        self._next_at = math.inf

    @property
    def deadline(self) -> float | None:
        """When to call `expire`, in time.monotonic's seconds; None while nothing is due."""
        due = min(self._next_at, self._later_at)
        return due if due < math.inf and not self._state.ending else None

    def heard(self, message: FromHook | Exited, now: float) -> None:
        """Record what has become known: a hook has reported something, or a rank has ended."""
        if isinstance(message, Exited):
            self.learned(Fact.END, now)
        else:
            self.learned(_FACTS.get(type(message.message), Fact.NOTHING), now)

    def learned(self, fact: Fact, now: float) -> None:
        """Record what has become known."""
        if fact and not self._state.ending:
            self._facts |= fact
            ranks = len(self._state.ranks)
            soon = self._passed_at + (_PAUSE_S * ranks if ranks > _FEW_RANKS else 0.0)
            self._next_at = min(self._next_at, max(now, soon))

    def expire(self, now: float) -> list[Finding] | None:
        """Return what is to be said now, if anything."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        facts = self._facts
        if now >= self._later_at:
            facts, self._later, self._later_at = facts | self._later, Fact.NOTHING, math.inf
        self._facts, self._next_at, self._passed_at = Fact.NOTHING, math.inf, now
        return self._ask(facts, now) or None

    def last_words(self, now: float) -> list[Finding]:
        """Return what has been found of processes below ranks and not been due yet."""
        return self._ask(Fact.BELOW, now, waits=False)

    def _ask(self, facts: Fact, now: float, *, waits: bool = True) -> list[Finding]:
        from mcjax_launch.diagnosis.rules import findings

        if waits and not self._state.running:
            return []  # the summary is next
        found = list(findings(View(self._state, now), Occasion.NOTE, facts))
        said = self._said
        later = [item for item in found if waits and item.due > now and item.key not in said]
        if later:
            self._later |= facts
            self._later_at = min(self._later_at, *(item.due for item in later))
        return self.untold((item for item in found if item not in later), now)

    def untold(self, found: Iterable[Finding], now: float) -> list[Finding]:
        """Return the findings that are news, or have lasted twice as long; they are said now."""
        return [finding for finding in found if self._is_news(finding, now)]

    def _is_news(self, finding: Finding, now: float) -> bool:
        if finding.is_certain:
            return True
        lasted_s = 0.0 if finding.since is None else now - finding.since
        least_s = self._said.get(finding.key, 0.0 if finding.since is None else AFTER_S)
        line = finding.words or finding.cure
        if lasted_s < least_s or (finding.since is None and line in self._lines):
            return False
        self._said[finding.key] = math.inf if finding.since is None else next_time(lasted_s)
        self._lines.add(line)
        return True

    def next_at(self, finding: Finding) -> float:
        """Return when a finding that lasts will have lasted long enough to be said again."""
        return (finding.since or 0.0) + self._said.get(finding.key, AFTER_S)

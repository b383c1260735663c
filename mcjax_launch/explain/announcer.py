"""Selection of findings to print while a job runs, each once; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcjax_launch.explain.view import Fact, Occasion, View
from mcjax_launch.journal.facts import Finding, GpuMemoryKnown, ProgramsDiffer
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.messages import Exited

if TYPE_CHECKING:
    from mcjax_launch.journal.state import RunState

# Pause between two passes over the rules, per rank, so that passes take little of the time.
_PAUSE_S = 5e-4
# With so few there is no pause: a call that fails at once is judged before its failure.
_FEW_RANKS = 50
# Facts that rules depend on; a pass sees all others too, but none of those starts a pass.
_FACTS: dict[type, Fact] = {
    hook.ImportedJax: Fact.JAX,
    hook.Compiling: Fact.JAX,
    hook.NotJoined: Fact.JAX,
    hook.Joining: Fact.CALL,
    hook.CalledBelow: Fact.BELOW,
    hook.Backend: Fact.BACKEND,
    hook.ProcessNumber: Fact.NUMBER,
    hook.CollectedTests: Fact.TESTS,
    Exited: Fact.END,
    ProgramsDiffer: Fact.SEQUENCE,
    GpuMemoryKnown: Fact.GPU_MEMORY,
}


class Announcer:
    """Selector of the findings to print: evaluates the rules and omits findings already printed.

    A pass over the rules takes time in proportion to the number of ranks. So with many ranks there
    are only a few passes per second, however much becomes known in between.

    Args:
        state: state of the run.

    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._said: set[object] = set()  # keys
        self._lines: set[str] = set()
        self._facts = self._later = Fact.NOTHING
        self._passed_at = -math.inf
        self._later_at = math.inf
        self._next_at = math.inf

    @property
    def deadline(self) -> float | None:
        """Time of the next `expire`, in time.monotonic's seconds; None while nothing is due."""
        due = min(self._next_at, self._later_at)
        return due if due < math.inf and not self._state.ending else None

    def record(self, known: object, now: float) -> None:
        """Record that a fact has become known; it may schedule a pass over the rules."""
        fact = _FACTS.get(type(known), Fact.NOTHING)
        if fact and not self._state.ending:
            self._facts |= fact
            ranks = len(self._state.ranks)
            soon = self._passed_at + (_PAUSE_S * ranks if ranks > _FEW_RANKS else 0.0)
            self._next_at = min(self._next_at, max(now, soon))

    def expire(self, now: float) -> list[Finding] | None:
        """Return the findings to print now; None if nothing is due."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return None
        facts = self._facts
        if now >= self._later_at:
            facts, self._later, self._later_at = facts | self._later, Fact.NOTHING, math.inf
        self._facts, self._next_at, self._passed_at = Fact.NOTHING, math.inf, now
        return self._ask(facts, now) or None

    def select_pending_findings(self, now: float) -> list[Finding]:
        """Return the unprinted findings about ranks' child processes and the order of programs.

        Call this when the job is over: findings that were not yet due are included.
        """
        order = Fact.NOTHING if self._state.ending else Fact.SEQUENCE
        return self._ask(Fact.BELOW | order, now, waits=False)

    def _ask(self, facts: Fact, now: float, *, waits: bool = True) -> list[Finding]:
        from mcjax_launch.explain.rules import apply_rules

        if waits and not self._state.running:
            return []  # the summary is next
        found = list(apply_rules(View(self._state, now), Occasion.NOTE, facts))
        said = self._said
        later = [item for item in found if waits and item.due > now and item.key not in said]
        if later:
            self._later |= facts
            self._later_at = min(self._later_at, *(item.due for item in later))
        return self.select_news(item for item in found if item not in later)

    def select_news(self, found: Iterable[Finding]) -> list[Finding]:
        """Select findings that are new, and mark them printed."""
        return [finding for finding in found if self._is_news(finding)]

    def _is_news(self, finding: Finding) -> bool:
        if finding.is_certain:
            return True
        line = finding.words or finding.cure
        if finding.key in self._said or line in self._lines:
            return False
        self._said.add(finding.key)
        self._lines.add(line)
        return True

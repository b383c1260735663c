"""Selection of findings to print while a job runs, each once; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcjax_launch.features.explain.view import Moment, View
from mcjax_launch.wire.messages import Exited

if TYPE_CHECKING:
    from mcjax_launch.journal.facts import Finding
    from mcjax_launch.journal.state import RunState

# Pause between two passes over the rules, per rank, so that passes take little of the time.
_PAUSE_S = 5e-4
# With so few there is no pause: a call that fails at once is judged before its failure.
_FEW_RANKS = 50


class Announcer:
    """Selector of the findings to print: evaluates the rules and omits findings already printed.

    A pass over the rules takes time in proportion to the number of ranks. So with many ranks there
    are only a few passes per second, however much becomes known in between.

    Args:
        state: state of the run.

    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._news: set[type | Moment] = set()
        self._passed_at = -math.inf
        self._next_at = math.inf

    @property
    def deadline(self) -> float | None:
        """Time of the next `expire`, in time.monotonic's seconds; None while nothing is due."""
        return self._next_at if self._next_at < math.inf and not self._state.ending else None

    def record(self, known: object, now: float) -> None:
        """Record that a fact has become known; it may schedule a pass over the rules."""
        if self._state.ending or (isinstance(known, Exited) and not self._state.initialize_calls):
            return  # so most jobs without JAX never load the rules
        from mcjax_launch.features.explain.rules import list_facts

        if type(known) in list_facts():
            self._news.add(type(known))
            ranks = len(self._state.ranks)
            soon = self._passed_at + (_PAUSE_S * ranks if ranks > _FEW_RANKS else 0.0)
            self._next_at = min(self._next_at, max(now, soon))

    def expire(self, now: float) -> list[Finding]:
        """Return the findings to print now."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return []
        self._next_at, self._passed_at = math.inf, now
        return self._ask(now) if self._state.running else []  # else the summary is next

    def ask_last(self, now: float) -> list[Finding]:
        """Return the findings that follow from facts of which a pass has not come, at the end."""
        return self._ask(now) if self._news and not self._state.ending else []

    def _ask(self, now: float) -> list[Finding]:
        from mcjax_launch.features.explain.rules import apply_rules

        news, self._news = self._news, set()
        return self.select_news(apply_rules(View(self._state, now), *news))

    def select_news(self, found: Iterable[Finding]) -> list[Finding]:
        """Return the findings that have not been told; all that are certain, which end the job."""
        told = self._state.told
        return [each for each in found if each.is_certain or each.words not in told]

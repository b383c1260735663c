"""Answers of the main thread when the agent asks by a signal whether it runs Python."""

from __future__ import annotations

from ...hook.part import RankPart
from ...hook.questions import answer_signal
from ...machine import system
from .messages import MainThreadRuns


class LivenessReporter(RankPart):
    """Part that answers polls of the main thread after initialize()."""

    def on_join(self) -> None:
        """Begin to answer."""
        answer_signal(system.get_liveness_signal(), self._answer)

    def _answer(self, _signum: int, _frame: object) -> None:
        try:
            self.link.send(MainThreadRuns())
        except Exception:
            pass


PART = LivenessReporter

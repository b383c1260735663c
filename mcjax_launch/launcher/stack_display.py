"""Display of the stacks of all ranks, for the user or before a limit ends the job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.snapshots import Stack
    from mcjax_launch.launcher.part import JobLauncher


class StackDisplay:
    """Display of stacks on the console, in events and for debuggers.

    Args:
        launcher: the launcher, whose agents are asked.

    """

    def __init__(self, launcher: JobLauncher) -> None:
        self._launcher = launcher

    def show(self, *, before_stop: bool = False) -> None:
        """Ask for the stacks of all ranks and show them.

        Args:
            before_stop: True to ask for all threads; then the stop policy ends the job.

        """
        launcher, native = self._launcher, before_stop and self._launcher.job.record
        launcher.stacks.request(launcher.links, self._show, all_threads=before_stop, native=native)

    def _show(self, stacks: list[Stack]) -> None:
        from mcjax_launch.diagnosis.snapshots import format_stacks

        launcher, state = self._launcher, self._launcher.state
        lines = format_stacks(stacks) if stacks else []
        state.stacks = tuple(lines)
        if not launcher.policy.wants_stacks:
            lines += self._explain()
        launcher.events.report("stacks", lines=lines)
        if lines and not launcher.debuggers.show(lines):
            launcher.console.say("\n".join(lines))
        launcher.perform(launcher.policy.on_stacks_shown())

    def _explain(self) -> list[str]:
        """Return what is known about limits and waiting ranks, to print below the stacks."""
        from mcjax_launch.diagnosis.rules import list_limit_lines
        from mcjax_launch.diagnosis.view import View

        view = View(self._launcher.state, time.monotonic())
        explanations = self._launcher.parts.explanations
        advice = [] if explanations is None else explanations.explain_stacks(view)
        return [*list_limit_lines(view), *advice]

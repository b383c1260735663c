"""Display of the stacks of all ranks, for the user or before a limit ends the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.journal.facts import StacksShown
from mcjax_launch.options import features as declared

if TYPE_CHECKING:
    from mcjax_launch.journal.facts import Stack
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
        launcher = self._launcher
        launcher.stacks.request(launcher.links, self._show, all_threads=before_stop)

    def _show(self, stacks: list[Stack]) -> None:
        launcher = self._launcher
        lines = _format_stacks(stacks) if stacks else []
        known = self._explain(stacks)
        launcher.journal.append(StacksShown(lines, known))
        lines += known
        if lines and not launcher.debuggers.show(lines):
            launcher.console.say("\n".join(lines))
        launcher.perform(launcher.policy.on_stacks_shown())

    def _explain(self, stacks: list[Stack]) -> Sequence[str]:
        """Return lines to print below the stacks; before a stop, the summary will have them."""
        explanations = self._launcher.parts.load_explanations()
        if explanations is None:
            return ()
        if not self._launcher.policy.wants_stacks:
            return explanations.explain_stacks(stacks)
        explanations.record_stacks(stacks)
        return ()


def _format_stacks(stacks: Sequence[Stack]) -> list[str]:
    """Format stacks as lines; without explanations as they came."""
    if (snapshots := declared.load("snapshots")) is not None:
        return list(snapshots.format_stacks(stacks))
    return [line for stack in stacks for line in (f"rank {stack.rank}:", *stack.text.splitlines())]

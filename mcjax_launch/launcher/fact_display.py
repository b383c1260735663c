"""Reader of the journal that lets the console show facts on ranks, most of them with -v."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.journal.facts import StacksShown
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.journal.words import describe_rank_end
from mcjax_launch.options import features as declared
from mcjax_launch.wire import hook_messages

if TYPE_CHECKING:
    from mcjax_launch.console.console import Console
    from mcjax_launch.journal.facts import HostGone, Stack
    from mcjax_launch.journal.rank_run import RankRun
    from mcjax_launch.journal.state import RunState
    from mcjax_launch.launcher.part import JobLauncher
    from mcjax_launch.wire.messages import Exited, FromHook, Started


class FactDisplay:
    """Reader that shows what becomes known on ranks.

    Args:
        console: the console.
        state: state of the run, which has read each fact before.

    """

    def __init__(self, console: Console, state: RunState) -> None:
        self._console = console
        self._state = state

    def on_started(self, started: Started, at: float) -> None:
        """Show a rank's process id."""
        host = self._state.ranks[started.rank].host
        self._console.show_detail(f"rank {started.rank} on {host}: pid {started.pid}")

    def on_from_hook(self, told: FromHook, at: float) -> None:
        """Show how ranks join; prepare the console for what a failed rank prints."""
        rank, said = told.rank, told.message
        run = self._state.ranks[rank]
        if isinstance(said, hook_messages.Failed):
            if run.hidden_failure is not None and run.verdict is None:
                self._set_verdict(run)
        elif rank == min(self._state.ranks):
            self._show_joining(run, said)

    def _show_joining(self, run: RankRun, said: hook_messages.HookMessage) -> None:
        call = run.membership.call
        if isinstance(said, hook_messages.Joining) and said.replaced:
            where = f" at {said.where}" if said.where else ""
            self._console.show_detail(
                f"initialize(){where} names {said.replaced}, a placeholder: using the job's own "
                "coordinator"
            )
        elif isinstance(said, hook_messages.Joined) and call is not None:
            address = "a private socket" if said.private else call.coordinator_address
            self._console.show_detail(f"rank {run.process_id} joined at {address}")

    def on_exited(self, exited: Exited, at: float) -> None:
        """Show how a rank has ended."""
        run = self._state.ranks[exited.rank]
        if exited.status:
            self._set_verdict(run)
        self._console.show_detail(f"rank {exited.rank}: {describe_rank_end(run)}")

    def _set_verdict(self, run: RankRun) -> None:
        self._console.set_verdict(run.process_id, determine_verdict(run), run.failure)

    def on_host_gone(self, gone: HostGone, at: float) -> None:
        """Say what an agent could not remove."""
        if gone.bye.not_removed:
            self._console.note(f"{gone.host}: could not remove {gone.bye.not_removed}")


# --- display of the stacks of all ranks, for the user or before a limit ends the job ---


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
            lines: Sequence[str] = explanations.explain_stacks(stacks)
            return lines
        explanations.record_stacks(stacks)
        return ()


def _format_stacks(stacks: Sequence[Stack]) -> list[str]:
    """Format stacks as lines; without explanations as they came."""
    if (snapshots := declared.load("snapshots")) is not None:
        return list(snapshots.format_stacks(stacks))
    return [line for stack in stacks for line in (f"rank {stack.rank}:", *stack.text.splitlines())]

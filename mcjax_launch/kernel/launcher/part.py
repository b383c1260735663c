"""What a feature does in the launcher: one object for each feature that a job uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.summary import Summary
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.kernel.launcher.launcher import Launcher
    from mcjax_launch.kernel.transport.connection import AgentConnection
    from mcjax_launch.kernel.wire.frames import Raw
    from mcjax_launch.kernel.wire.messages import ToAgent, ToLauncher


class LauncherPart:
    """By default it does nothing.

    The launcher makes it when the ranks are about to be started, if the job uses the feature
    (`features.used`), or else, where hosts have it (`features.on_hosts`), when an agent first sends
    something of it; that the job is already ending it hears first. `features.<name>.launcher` has
    the class, as PART.

    Args:
        launcher: whose part it is.

    Attributes:
        deadline: when to call `expire`, in time.monotonic's seconds.
        ending_s: so much longer hosts may take to end the ranks, for its sake.

    """

    deadline: float | None = None
    ending_s: float = 0.0

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher

    def orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """What the agent of a host is to know before it starts these ranks."""
        return ()

    def begins(self, plan: Plan, now: float) -> None:
        """All agents have been told to start their ranks."""

    def received(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """An agent has sent a message of the feature, or raw bytes, or passed on a hook's."""

    def signalled(self, signum: int) -> None:
        """The launcher has received a signal that does not end the job."""

    def hangs(self) -> None:
        """Ranks wait for one another, as has just been said; nothing is ended for that."""

    def stops(self, now: float) -> None:
        """The ranks are being ended."""

    def lost(self, link: AgentConnection, now: float) -> None:
        """An agent says nothing more."""

    def shows(self, lines: Sequence[str]) -> bool:
        """Show lines that the user has asked for; whether it has."""
        return False

    def expire(self, now: float) -> None:
        """Do what is due."""

    def concluded(self, summary: Summary, *, last: bool) -> None:
        """The attempt's summary has been printed; there is no other if it is the `last`."""

    def close(self, now: float) -> None:
        """The attempt is over."""

"""Parts of the launcher: timers and features; and the pause before a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mcjax_launch.kernel.wire.timers import scaled

if TYPE_CHECKING:
    from mcjax_launch.console.console import Console
    from mcjax_launch.diagnosis.summary import Summary
    from mcjax_launch.diagnosis.view import Fact, View
    from mcjax_launch.events.events import Events
    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.kernel.launcher.front import Front
    from mcjax_launch.kernel.launcher.stack_requests import StackRequests
    from mcjax_launch.kernel.launcher.startup import Startup
    from mcjax_launch.kernel.launcher.stop_policy import Effects, StopPolicy
    from mcjax_launch.kernel.transport.connection import AgentConnection
    from mcjax_launch.kernel.transport.pool import AgentPool
    from mcjax_launch.kernel.wire.frames import Raw
    from mcjax_launch.kernel.wire.messages import Exited, FromHook, ToAgent, ToLauncher
    from mcjax_launch.runs.rank_run import RankRun
    from mcjax_launch.runs.state import RunState
    from mcjax_launch.runs.stop_reasons import StopReason

# --- parts that have a timer ---

T = TypeVar("T", covariant=True)
U = TypeVar("U")
# Seconds before another attempt, or a rank's restart; doubled each time.
_FIRST_PAUSE_S = scaled(1.0)
_MOST_PAUSE_S = scaled(30.0)


def pause_s(before: int) -> float:
    """Return the seconds to wait before restart number `before` + 1: 1, 2, 4, ... up to 30."""
    return min(_FIRST_PAUSE_S * float(2 ** min(before, 10)), _MOST_PAUSE_S)


class Policy(Protocol[T]):
    """Part that decides what is to be done, and does nothing itself."""

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`; None while there is nothing to wait for."""

    def expire(self, now: float) -> T | None:
        """Return what is to be done, if the deadline has come; None for nothing."""


class TimerAction(Generic[U]):
    """Timer that carries out what a part decides.

    Args:
        part: the part that decides.
        act: called with its decision.

    """

    def __init__(self, part: Policy[U], act: Callable[[U], object]) -> None:
        self._part = part
        self._act = act

    @property
    def deadline(self) -> float | None:
        """Time at which the part has something to decide."""
        return self._part.deadline

    def expire(self, now: float) -> None:
        """Let the part decide, and carry out its decision."""
        decision = self._part.expire(now)
        if decision is not None:
            self._act(decision)


class OneShotTimer:
    """Timer that acts once.

    Args:
        deadline: when, in time.monotonic's seconds.
        act: called then.

    """

    def __init__(self, deadline: float, act: Callable[[], object]) -> None:
        self.deadline: float | None = deadline
        self._act = act

    def expire(self, now: float) -> None:
        """Act, if the deadline has come."""
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._act()


# --- a part: one object for each feature that a job uses, and for some of the kernel's own ---


class JobLauncher(Protocol):
    """Launcher, as far as parts use it; see `launcher.Launcher`."""

    console: Console
    events: Events
    front: Front
    job: Job
    kept: dict[str, object]
    policy: StopPolicy
    pool: AgentPool
    restart: int
    stacks: StackRequests
    startup: Startup
    state: RunState

    @property
    def links(self) -> list[AgentConnection]:
        """Connections to the agents."""

    def asked(self, rank: Rank) -> Rank:
        """Return a rank with the variables of features, besides its own."""

    def interrupt(self, signum: int, by: str = "") -> None:
        """End the job, as a signal of the user's does."""

    def learned(self, fact: Fact, now: float) -> None:
        """Inform all parts that a part has found out a fact."""

    def perform(self, effects: Effects) -> None:
        """Carry out what the stop policy has decided."""

    def request_stacks(self) -> None:
        """Show the user the stacks of all ranks."""

    def say(self, text: str) -> None:
        """Print the launcher's own lines after the end."""

    def start_again(self, plan: Plan, link: AgentConnection, ranks: Sequence[Rank]) -> None:
        """Restart the ranks of a host that was lost, and has come back."""

    def stop(self, stop: StopReason) -> None:
        """End the job for this reason."""

    def report_hang(self) -> None:
        """Inform all parts of a hang that has just been explained."""


class LauncherPart:
    """Part of the launcher for a feature; by default it does nothing.

    The launcher makes it when the ranks are about to be started, if the job uses the feature
    (`features.used`); otherwise, if hosts have the feature (`features.on_hosts`), when an agent
    first sends something of it. If the job is already ending then, `stops` is called first.
    `features.NAME.launcher` has the class, as PART.

    Args:
        launcher: the launcher.

    Attributes:
        deadline: when to call `expire`, in time.monotonic's seconds.
        ending_s: seconds that the part adds to the time that hosts may take to end the ranks.

    """

    deadline: float | None = None
    ending_s: float = 0.0

    def __init__(self, launcher: JobLauncher) -> None:
        self.launcher = launcher

    def orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Return messages for the agent of a host before it starts these ranks."""
        return ()

    def asks(self, rank: Rank) -> str:
        """Return the value of the feature's variable for a rank; "" to leave it unset."""
        return ""

    def begins(self, plan: Plan, now: float) -> None:
        """Act when all agents have been told to start their ranks."""

    def heard(self, message: FromHook | Exited, now: float) -> None:
        """Handle a hook's message to the kernel, or the end of a rank's process."""

    def learned(self, fact: Fact, now: float) -> None:
        """Handle a fact that another part has found out."""

    def outlives(self, run: RankRun) -> bool:
        """Handle the failure of a rank; return whether the job goes on, after reporting it."""
        return False

    def outlives_host(self, stop: StopReason, host: Host, lost: Sequence[RankRun]) -> bool:
        """Handle the loss of a host with these unended ranks; return whether the job goes on."""
        return False

    @property
    def awaits_host(self) -> bool:
        """True if the job is not over although no agent is left."""
        return False

    def explains(self, view: View) -> Sequence[str]:
        """Return lines to print below stacks that the user has asked for."""
        return ()

    def received(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle a message of the feature, raw bytes, or a hook's message, from an agent."""

    def signalled(self, signum: int) -> None:
        """Handle a signal to the launcher that does not end the job."""

    def hangs(self) -> None:
        """Act when ranks wait for each other, which has just been said; nothing is ended for it."""

    def stops(self, now: float) -> None:
        """Act when the ranks are being ended."""

    def lost(self, link: AgentConnection, now: float) -> None:
        """Act when an agent is gone."""

    def shows(self, lines: Sequence[str]) -> bool:
        """Show lines that the user has asked for; return whether the part has shown them."""
        return False

    def expire(self, now: float) -> None:
        """Act, if the deadline has come."""

    def concludes(self, now: float) -> None:
        """Act when all ranks have ended, before the summary."""

    def concluded(self, summary: Summary, *, last: bool) -> None:
        """Act after the attempt's summary was printed; no other attempt follows the `last`."""

    def close(self, now: float) -> None:
        """Release everything, because the attempt is over."""

"""Parts of the launcher: those with a timer, a feature's; and the pause before a restart."""

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
# Before another attempt, or a rank's next life; doubled each time.
_FIRST_PAUSE_S = scaled(1.0)
_MOST_PAUSE_S = scaled(30.0)


def pause_s(before: int) -> float:
    """How long to wait before the next attempt, or life, where so many have been waited for."""
    return min(_FIRST_PAUSE_S * float(2 ** min(before, 10)), _MOST_PAUSE_S)


class Deciding(Protocol[T]):
    """A part that says what is to be done, and does nothing itself."""

    @property
    def deadline(self) -> float | None:
        """When to call `expire`; None while there is nothing to wait for."""

    def expire(self, now: float) -> T | None:
        """What is to be done, if it is time."""


class Acting(Generic[U]):
    """A timer that does what a part decides.

    Args:
        part: that decides.
        act: called with what is to be done.

    """

    def __init__(self, part: Deciding[U], act: Callable[[U], object]) -> None:
        self._part = part
        self._act = act

    @property
    def deadline(self) -> float | None:
        """When the part has something to decide."""
        return self._part.deadline

    def expire(self, now: float) -> None:
        """Let it decide, and act on the decision."""
        decision = self._part.expire(now)
        if decision is not None:
            self._act(decision)


class Once:
    """A timer that acts once.

    Args:
        deadline: when, in time.monotonic's seconds.
        act: called then.

    """

    def __init__(self, deadline: float, act: Callable[[], object]) -> None:
        self.deadline: float | None = deadline
        self._act = act

    def expire(self, now: float) -> None:
        """Act, if it is time."""
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._act()


# --- a part: one object for each feature that a job uses, and for some of the kernel's own ---


class JobLauncher(Protocol):
    """The launcher as far as parts use it; see `launcher.Launcher`."""

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
        """The connections to agents."""

    def asked(self, rank: Rank) -> Rank:
        """Return a rank with the variables of features."""

    def interrupt(self, signum: int, by: str = "") -> None:
        """End the job as a signal of the user's does."""

    def learned(self, fact: Fact, now: float) -> None:
        """Have the parts act on a fact."""

    def perform(self, effects: Effects) -> None:
        """Do what the stop policy has decided."""

    def request_stacks(self) -> None:
        """Show the stacks of all ranks."""

    def say(self, text: str) -> None:
        """Print lines after the end."""

    def start_again(self, plan: Plan, link: AgentConnection, ranks: Sequence[Rank]) -> None:
        """Start the ranks of a lost host again."""

    def stop(self, stop: StopReason) -> None:
        """End the job for this reason."""

    def tell_of_hang(self) -> None:
        """Have the parts act on a hang that has been explained."""


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

    def __init__(self, launcher: JobLauncher) -> None:
        self.launcher = launcher

    def orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """What the agent of a host is to know before it starts these ranks."""
        return ()

    def asks(self, rank: Rank) -> str:
        """Return what the feature's part in a rank is asked for; "" for nothing."""
        return ""

    def begins(self, plan: Plan, now: float) -> None:
        """All agents have been told to start their ranks."""

    def heard(self, message: FromHook | Exited, now: float) -> None:
        """A hook has reported something of the kernel's, or a rank's process has ended."""

    def learned(self, fact: Fact, now: float) -> None:
        """Another part has found something out."""

    def outlives(self, run: RankRun) -> bool:
        """A rank has failed: return whether the job goes on, which has been said then."""
        return False

    def outlives_host(self, stop: StopReason, host: Host, lost: Sequence[RankRun]) -> bool:
        """A host is lost with these ranks, which have not ended: return whether the job goes on."""
        return False

    @property
    def awaits_host(self) -> bool:
        """Whether the job is not over although no agent is left."""
        return False

    def explains(self, view: View) -> Sequence[str]:
        """Return what to say below stacks that the user has asked for."""
        return ()

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

    def concludes(self, now: float) -> None:
        """All ranks have ended, and the summary comes next."""

    def concluded(self, summary: Summary, *, last: bool) -> None:
        """The attempt's summary has been printed; there is no other if it is the `last`."""

    def close(self, now: float) -> None:
        """The attempt is over."""

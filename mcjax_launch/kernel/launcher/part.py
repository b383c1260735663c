"""Base classes for parts of the launcher: timers and features; also the pause before restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mcjax_launch.kernel.wire.timers import scale_time

if TYPE_CHECKING:
    from mcjax_launch.console.console import Console
    from mcjax_launch.diagnosis.summary import Summary
    from mcjax_launch.diagnosis.view import Fact
    from mcjax_launch.events.events import Events
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
    from mcjax_launch.runs.state import RunState
    from mcjax_launch.runs.stop_reasons import StopReason

# --- parts that have a timer ---

T = TypeVar("T", covariant=True)
U = TypeVar("U")
# Seconds before another attempt, or a rank's restart; doubled each time.
_FIRST_PAUSE_S = scale_time(1.0)
_MOST_PAUSE_S = scale_time(30.0)


def compute_pause_s(before: int) -> float:
    """Return the seconds to wait before restart number `before` + 1: 1, 2, 4, ... up to 30."""
    return min(_FIRST_PAUSE_S * float(2 ** min(before, 10)), _MOST_PAUSE_S)


class Policy(Protocol[T]):
    """Object that makes decisions and leaves their execution to its caller."""

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`; None while there is nothing to wait for."""

    def expire(self, now: float) -> T | None:
        """Return a decision if the deadline has passed; None for none."""


class TimerAction(Generic[U]):
    """Timer that carries out a policy's decisions.

    Args:
        part: the policy.
        act: function called with each decision.

    """

    def __init__(self, part: Policy[U], act: Callable[[U], object]) -> None:
        self._part = part
        self._act = act

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`; None while there is nothing to decide."""
        return self._part.deadline

    def expire(self, now: float) -> None:
        """Ask the policy for a decision, and carry it out."""
        decision = self._part.expire(now)
        if decision is not None:
            self._act(decision)


class OneShotTimer:
    """Timer that acts once.

    Args:
        deadline: time of the action, in time.monotonic's seconds.
        act: function called at that time.

    """

    def __init__(self, deadline: float, act: Callable[[], object]) -> None:
        self.deadline: float | None = deadline
        self._act = act

    def expire(self, now: float) -> None:
        """Call the function if the deadline has passed and it was not called before."""
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._act()


# --- a part: one object for each feature that a job uses, and for some of the kernel's own ---


class JobLauncher(Protocol):
    """Interface of the launcher for its parts; see `launcher.Launcher`."""

    console: Console
    debuggers: DebuggerDisplay
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

    def add_variables(self, rank: Rank) -> Rank:
        """Return a rank with features' environment variables added to its own."""

    def on_fact(self, fact: Fact, now: float) -> None:
        """Pass a new fact, found by a part, to the explanations."""

    def perform(self, effects: Effects) -> None:
        """Carry out the effects that the stop policy has decided on."""

    def request_stacks(self) -> None:
        """Show the user the stacks of all ranks."""

    def say(self, text: str) -> None:
        """Print a line of the launcher, also after the attempt's end."""

    def stop(self, stop: StopReason) -> None:
        """End the job for a reason."""


class DebuggerDisplay:
    """Debuggers in ranks, as far as other parts of the launcher know them: by default none.

    The part of the feature puts itself in its place, as `launcher.debuggers`.
    """

    def show(self, lines: Sequence[str]) -> bool:
        """Show lines to a user who debugs; return False if no debugger has the terminal."""
        return False

    def on_agent_loss(self, link: AgentConnection, now: float) -> None:
        """Handle the end or loss of an agent, whose debuggers are gone."""


class LauncherPart:
    """Part of the launcher for a feature; its methods do nothing by default.

    The launcher makes it when the ranks are about to be started, if the job uses the feature
    (`features.list_used`). If only hosts use it (`features.list_for_hosts`), it is made when an
    agent first sends a message for it; if the job is already ending, `on_stop` is called first.
    `features.NAME.launcher` has the class, as PART.

    Args:
        launcher: the launcher.

    Attributes:
        deadline: time of the next `expire`, in time.monotonic's seconds; None for never.

    """

    deadline: float | None = None

    def __init__(self, launcher: JobLauncher) -> None:
        self.launcher = launcher

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Return messages for a host's agent, sent before the order to start these ranks."""
        return ()

    def get_variable(self, rank: Rank) -> str:
        """Return the value of the feature's environment variable for a rank; "" to unset it."""
        return ""

    def on_begin(self, plan: Plan, now: float) -> None:
        """Begin the part's work: all agents have the order to start their ranks."""

    def on_rank_message(self, message: FromHook | Exited, now: float) -> None:
        """Handle a hook's message for the kernel, or the end of a rank's process."""

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle a message for this feature, or raw bytes, from an agent or a rank's hook."""

    def on_signal(self, signum: int) -> None:
        """Handle a signal that the launcher received and that does not end the job."""

    def on_stop(self, now: float) -> None:
        """Adapt to the stop of the job: the ranks are being ended from now on."""

    def expire(self, now: float) -> None:
        """Do what is due; called in each turn of the loop, so check `deadline` first."""

    def on_summary(self, summary: Summary, *, last: bool) -> None:
        """Finish after the printed summary; `last`: no other attempt follows."""

    def close(self, now: float) -> None:
        """Release everything, because the attempt is over."""

"""Parts of the launcher: one for each feature that a job uses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from mcjax_launch.options import features as declared
from mcjax_launch.wire import hook_environ

if TYPE_CHECKING:
    from mcjax_launch.console.console import Console
    from mcjax_launch.job.hosts import Host
    from mcjax_launch.job.job import Job
    from mcjax_launch.job.plan import Plan, Rank
    from mcjax_launch.journal.events import Events
    from mcjax_launch.journal.journal import Journal
    from mcjax_launch.journal.rank_run import RankRun
    from mcjax_launch.journal.state import RunState
    from mcjax_launch.journal.stop_reasons import StopReason
    from mcjax_launch.journal.summary import Summary
    from mcjax_launch.launcher.front import Front
    from mcjax_launch.launcher.stack_requests import StackRequests
    from mcjax_launch.launcher.startup import Startup
    from mcjax_launch.launcher.stop_policy import Effects, StopPolicy
    from mcjax_launch.machine.loop import Timer
    from mcjax_launch.transport.connection import AgentConnection
    from mcjax_launch.transport.pool import AgentPool
    from mcjax_launch.wire.frames import Raw
    from mcjax_launch.wire.messages import Prepare, ToAgent, ToLauncher


class JobLauncher(Protocol):
    """Interface of the launcher for its parts; see `launcher.Launcher`."""

    console: Console
    debuggers: DebuggerDisplay
    events: Events
    journal: Journal
    front: Front
    job: Job
    kept: dict[str, object]
    parts: LauncherParts
    policy: StopPolicy
    pool: AgentPool
    restart: int
    stacks: StackRequests
    startup: Startup
    state: RunState

    @property
    def links(self) -> list[AgentConnection]:
        """Connections to the agents."""

    def perform(self, effects: Effects) -> None:
        """Carry out the effects that the stop policy has decided on."""

    def request_stacks(self) -> None:
        """Show the user the stacks of all ranks."""

    def stop(self, stop: StopReason) -> None:
        """End the job for a reason."""


class LauncherPart:
    """Part of the launcher for a feature; its methods do nothing by default.

    The launcher makes it when the ranks are about to be started, if the job uses the feature
    (`is_used` in its `options`). Else it is made when an agent first sends a message for it; if the
    job is already ending, `on_stop` is called first. It lives as long as the attempt.
    `features.NAME.launcher` has the class, as PART. It reads the journal as well, by methods that
    are named after facts.

    Args:
        launcher: the launcher.

    Attributes:
        deadline: time of the next `expire`, in time.monotonic's seconds; None for never.
        is_for_ranks_alone: True if ranks' child processes do not get the feature's variable.

    """

    deadline: float | None = None
    is_for_ranks_alone = False

    def __init__(self, launcher: JobLauncher) -> None:
        self.launcher = launcher

    def begin(self, link: AgentConnection, asked: Prepare) -> ToAgent:
        """Return the first message to an agent, if the feature comes first.

        The part calls `Startup.prepare` when its step is over.
        """
        return asked

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Return messages for a host's agent, sent before the order to start these ranks."""
        return ()

    def get_variable(self, rank: Rank) -> str:
        """Return the value of the feature's environment variable for a rank; "" to unset it."""
        return ""

    def on_begin(self, plan: Plan, now: float) -> None:
        """Begin the part's work: all agents have the order to start their ranks."""

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle a message for this feature, or raw bytes, from an agent or a rank's hook."""

    def on_signal(self, signum: int) -> None:
        """Handle a signal that the launcher received and that does not end the job."""

    def on_rank_failure(self, run: RankRun) -> bool:
        """Handle a rank's failure; return True if the part reports it and the job goes on."""
        return False

    def on_host_loss(self, stop: StopReason, host: Host, lost: Sequence[RankRun]) -> bool:
        """Handle the loss of a host and its running ranks; return True if the job goes on."""
        return False

    def on_stop(self, now: float) -> None:
        """Adapt to the stop of the job: the ranks are being ended from now on."""

    def expire(self, now: float) -> None:
        """Do what is due; called in each turn of the loop, so check `deadline` first."""

    def on_summary(self, summary: Summary) -> None:
        """Finish after the printed summary."""

    def close(self, now: float) -> None:
        """Release everything, because the attempt is over."""


class DebuggerDisplay:
    """Debuggers in ranks, as far as other parts of the launcher know them: by default none.

    The part of the feature puts itself in its place, as `launcher.debuggers`.
    """

    def show(self, lines: Sequence[str]) -> bool:
        """Show lines to a user who debugs; return False if no debugger has the terminal."""
        return False

    def interrupt(self) -> bool:
        """Pass a Ctrl-C to the rank whose debugger has the terminal; return False if none has."""
        return False

    def on_agent_loss(self, link: AgentConnection, now: float) -> None:
        """Handle the end or loss of an agent, whose debuggers are gone."""


# --- all of them ---


class LauncherParts:
    """Parts of a launcher, by the names of their features.

    Args:
        launcher: the launcher.
        timers: the launcher's timers; each part becomes one of them.

    """

    def __init__(self, launcher: JobLauncher, timers: list[Timer]) -> None:
        self._launcher = launcher
        self._timers = timers
        self._parts: dict[str, LauncherPart] = {}

    def __iter__(self) -> Iterator[LauncherPart]:
        """Iterate over the parts that are loaded; handlers may load more."""
        return iter(list(self._parts.values()))

    def load(self, name: str) -> LauncherPart:
        """Return the part of a feature; load it at its first use."""
        part = self._parts.get(name)
        if part is None:
            module = import_module(f"mcjax_launch.features.{name}.launcher")
            part = self._add(name, module.PART(self._launcher))
        return part

    def _add(self, name: str, part: LauncherPart) -> LauncherPart:
        self._parts[name] = part
        self._timers.append(part)
        self._launcher.journal.add_to_attempt(part)
        if self._launcher.policy.stopping:
            part.on_stop(time.monotonic())
        return part

    def load_used(self) -> list[LauncherPart]:
        """Load the parts that must exist before the ranks start, and return them."""
        return list(map(self.load, declared.call("is_used", self._launcher.job)))

    def find(self, feature: str) -> LauncherPart | None:
        """Return the part of a feature that agents may send messages for; else None."""
        may_come = feature in self._parts or feature in declared.list_for_hosts(self._launcher.job)
        return self.load(feature) if may_come else None

    def load_explanations(self) -> Any:
        """Return the part that explains what happens; None if this copy has none.

        It is made when there is something to explain: each start would wait for its imports.
        """
        return self._load_module("explanations")

    def _load_module(self, name: str) -> LauncherPart | None:
        """Return the part in a module that some feature may have."""
        if name not in self._parts:
            if (module := declared.load(name)) is None:
                return None
            self._add(name, module.PART(self._launcher))
        return self._parts[name]

    def load_gpu_reports(self) -> None:
        """Load the part that reports what ranks do on GPUs; only hosts with GPUs need it."""
        self._load_module("gpu_reports")

    def add_variables(self, rank: Rank) -> Rank:
        """Return a rank with features' environment variables added to its own."""
        in_ranks = declared.call("is_in_ranks", self._launcher.job)
        variables = {hook_environ.get_feature_variable(feature): "" for feature in in_ranks}
        for feature, part in self._parts.items():
            if value := part.get_variable(rank):
                beginning = hook_environ.OWN if part.is_for_ranks_alone else hook_environ.ALL
                variables[f"{beginning}{feature.upper()}"] = value
        return rank.copy_with(env={**rank.env, **variables})

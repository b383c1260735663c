"""Makes the faults of --rehearse when it is time, and says at the end what came of each."""

import signal
import time
from collections.abc import Iterable, Sequence

from mcjax_launch.diagnosis.summary import Summary
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.rehearse.messages import NAME, LoseHost, SignalRank
from mcjax_launch.features.rehearse.rehearsals import Rehearsal, came_of, joined_at, parse
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.kernel.launcher.launcher import Launcher
from mcjax_launch.kernel.launcher.part import LauncherPart
from mcjax_launch.kernel.wire.messages import ToAgent


class Rehearsing(LauncherPart):
    """Each fault is made once, in the first attempt that gets so far."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__(launcher)
        wanted = launcher.kept.setdefault(NAME, [parse(text) for text in launcher.job.rehearse])
        assert isinstance(wanted, list)
        self._wanted: list[Rehearsal] = wanted  # and not done in this attempt or another
        self._done: list[tuple[Rehearsal, float]] = []
        self._host_of: dict[str, str] = {}
        self._joined_at: float | None = None

    def orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """See that each has its target, before any rank is started."""
        begun = bool(self._host_of)
        self._host_of = {str(rank.process_id): rank.host.name for rank in plan.ranks}
        for one in self._wanted if not begun else ():
            if one.rank is not None and one.target not in self._host_of:
                raise LaunchError(f"--rehearse {one.kind}:{one.target}: there is no such rank here")
            if one.kind == "lose" and one.target not in self._host_of.values():
                names = ", ".join(dict.fromkeys(self._host_of.values()))
                raise LaunchError(
                    f"--rehearse lose:{one.target}: there is no such host here; there are {names}"
                )
        return ()

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """When the next one is due."""
        if not self._wanted or self.launcher.policy.ending:
            return None
        if self._joined_at is None:
            self._joined_at = joined_at(self.launcher.state)
        if self._joined_at is None:
            return None
        return self._joined_at + min(one.after_s for one in self._wanted)

    def expire(self, now: float) -> None:
        """Make those faults that are due."""
        deadline = self.deadline
        if deadline is None or now < deadline or self._joined_at is None:
            return
        for one in [one for one in self._wanted if now >= self._joined_at + one.after_s]:
            self._wanted.remove(one)
            self._done.append((one, now))
            self.launcher.console.note(f"rehearsing {one}")
            self._make(one)

    def _make(self, one: Rehearsal) -> None:
        if one.kind == "term":
            self.launcher.interrupt(signal.SIGTERM)
            return
        host = one.target if one.kind == "lose" else self._host_of[one.target]
        signum = signal.SIGKILL if one.kind == "kill" else signal.SIGSTOP
        order = LoseHost() if one.rank is None else SignalRank(one.rank, signum)
        for link in self.launcher.links:
            if link.host.name == host:
                link.send(order)

    def concluded(self, summary: Summary, *, last: bool) -> None:
        """Say what came of each."""
        state, now = self.launcher.state, time.monotonic()
        for one, at in self._done:
            self.launcher.say(f"rehearsed {came_of(one, at, state, summary, now)}")
        for one in self._wanted if last else ():
            why = "the job had ended" if self._joined_at else "not all ranks had joined"
            self.launcher.say(f"not rehearsed: {one}: {why}")


PART = Rehearsing

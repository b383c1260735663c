"""Faults of --rehearse: caused when they are due, and their outcomes reported at the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence

from mcjax_launch.diagnosis.summary import Summary, describe_rank_end, format_duration
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.rehearse.messages import NAME, LoseHost, SignalRank
from mcjax_launch.job.plan import Plan, Rank
from mcjax_launch.kernel.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.kernel.wire.messages import ToAgent
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import format_all_ranks, format_ranks, group_by_key
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.state import RunState
from mcjax_launch.runs.stop_reasons import REHEARSED

# --- faults and their outcomes, in words ---


class Rehearsal(Value):
    """Fault to cause on purpose.

    Args:
        kind: "kill", "stop", "term" or "lose".
        target: a rank, a host, or "".
        after_s: seconds after all ranks have joined.

    """

    kind: str
    target: str
    after_s: float

    @property
    def rank(self) -> int | None:
        """Rank that the fault hits, if it hits a single rank."""
        return int(self.target) if self.kind in ("kill", "stop") else None

    def __str__(self) -> str:
        target = f":{self.target}" if self.target else ""
        return f"{self.kind}{target} at {self.after_s:g} s"


def parse(text: str) -> Rehearsal:
    """Parse the user's words, which `options.kinds.parse_rehearsal` has checked."""
    what, _, after = text.rpartition("@")
    kind, _, target = what.partition(":")
    return Rehearsal(kind, target, float(after))


def find_join_time(state: RunState) -> float | None:
    """Return when the last rank joined, or started if no join is expected; None before that.

    Joins are expected if the job has several ranks, whose Python loads the hook.
    """
    runs = state.ranks.values()
    if state.expects_hooks and state.num_processes > 1:
        times = [run.membership.joined_at for run in runs]
    else:
        times = [run.process.started_at for run in runs]
    known = [at for at in times if at is not None]
    return max(known) if known and len(known) == len(times) else None


def describe_outcome(
    done: Rehearsal, at: float, state: RunState, summary: Summary, now: float
) -> str:
    """Return a line that describes the consequences of a fault.

    Args:
        done: the fault.
        at: time of the fault.
        state: state of the attempt, which is over.
        summary: summary of the attempt.
        now: end time of the attempt; all times are in time.monotonic's seconds.

    """
    if done.kind == "term":
        return f"{done}: {_describe_exits(state, at)}"
    end = f"the job ended after {format_duration(now - at)}, with status {summary.status}"
    hit = [run for run in state.ranks.values() if _is_hit(run, done)]
    came = _describe_return(hit, at)
    if not came and summary.status != 0 and summary.lines and not state.survives:
        return f"{done}: {end}: {summary.lines[0]}"
    return f"{done}: {came or _describe_other_ends(state, hit)}; {end}"


def _is_hit(run: RankRun, done: Rehearsal) -> bool:
    hosts = (part.host for part in run.all_runs)
    return done.target in hosts if done.kind == "lose" else run.process_id == done.rank


def _describe_return(hit: list[RankRun], at: float) -> str:
    """Return words for how soon a rank joined again after the fault; "" if it did not."""
    for run in hit:
        again = run.membership.joined_at or (run.past and run.process.started_at)
        if run.past and again and again > at:
            return f"rank {run.process_id} was back after {format_duration(again - at)}"
    return ""


def _describe_other_ends(state: RunState, hit: list[RankRun]) -> str:
    others = [run for run in state.ranks.values() if run not in hit]
    if others and all(run.status == 0 for run in others):
        return f"the other {'rank' if len(others) == 1 else 'ranks'} ended with 0"
    return "; ".join(
        dict.fromkeys(f"rank {run.process_id} {describe_rank_end(run)}" for run in hit)
    )


def _describe_exits(state: RunState, at: float) -> str:
    """Describe the ranks' ends after they were asked to end."""
    runs = list(state.ranks.values())
    groups = group_by_key((_describe_exit(run), run.process_id) for run in runs)
    well = groups.pop("", [])
    ends = [run.process.ended_at for run in runs if run.status == 0 and run.process.ended_at]
    within = f"left with 0 within {format_duration(max(0.1, max(ends) - at))}" if ends else ""
    if not groups:
        return f"{format_all_ranks(len(runs)) if len(runs) > 1 else 'the rank'} {within}"
    parts = [f"{format_ranks(ranks)}: {how}" for how, ranks in groups.items()]
    return "; ".join([*parts, *([f"{format_ranks(well)} {within}"] if well else [])])


def _describe_exit(run: RankRun) -> str:
    """Describe the end of a rank that should have ended by itself; "" for status 0."""
    if run.status == 0:
        return ""
    if run.status == -signal.SIGKILL and signal.SIGKILL in run.process.signals:
        return "killed after the grace"
    return describe_rank_end(run)


# --- causing faults when they are due ---


class FaultRehearsal(LauncherPart):
    """Part that causes each fault once, in the first attempt that lasts long enough."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        wanted = launcher.kept.setdefault(NAME, [parse(text) for text in launcher.job.rehearse])
        assert isinstance(wanted, list)
        self._wanted: list[Rehearsal] = wanted  # not yet caused in any attempt
        self._done: list[tuple[Rehearsal, float]] = []
        self._host_of: dict[str, str] = {}
        self._joined_at: float | None = None

    def make_orders(self, ranks: Sequence[Rank], plan: Plan) -> Iterable[ToAgent]:
        """Check that each fault's target exists, before any rank is started."""
        begun = bool(self._host_of)
        self._host_of = {str(rank.process_id): rank.host.name for rank in plan.ranks}
        for fault in self._wanted if not begun else ():
            if fault.rank is not None and fault.target not in self._host_of:
                name = f"{fault.kind}:{fault.target}"
                raise LaunchError(f"--rehearse {name}: there is no such rank here")
            if fault.kind == "lose" and fault.target not in self._host_of.values():
                names = ", ".join(dict.fromkeys(self._host_of.values()))
                raise LaunchError(
                    f"--rehearse lose:{fault.target}: there is no such host here; there are {names}"
                )
        return ()

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time at which the next fault is due; None if none is."""
        if not self._wanted or self.launcher.policy.ending:
            return None
        if self._joined_at is None:
            self._joined_at = find_join_time(self.launcher.state)
        if self._joined_at is None:
            return None
        return self._joined_at + min(fault.after_s for fault in self._wanted)

    def expire(self, now: float) -> None:
        """Cause the faults that are due."""
        deadline = self.deadline
        if deadline is None or now < deadline or self._joined_at is None:
            return
        due_after_s = now - self._joined_at
        for fault in [fault for fault in self._wanted if due_after_s >= fault.after_s]:
            self._wanted.remove(fault)
            self._done.append((fault, now))
            self.launcher.console.note(f"rehearsing {fault}")
            self._inject(fault)

    def _inject(self, fault: Rehearsal) -> None:
        if fault.kind == "term":
            self.launcher.interrupt(signal.SIGTERM, REHEARSED)
            return
        host = fault.target if fault.kind == "lose" else self._host_of[fault.target]
        signum = signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP
        order = LoseHost() if fault.rank is None else SignalRank(fault.rank, signum)
        for run in self.launcher.state.ranks.values():
            if _is_hit(run, fault) and fault.kind != "stop":
                run.process.rehearsed = True
        for link in self.launcher.links:
            if link.host.name == host:
                link.send(order)

    def on_summary(self, summary: Summary, *, last: bool) -> None:
        """Report the outcome of each fault."""
        state, now = self.launcher.state, time.monotonic()
        for fault, at in self._done:
            self.launcher.say(f"rehearsed {describe_outcome(fault, at, state, summary, now)}")
        for fault in self._wanted if last else ():
            why = "the job had ended" if self._joined_at else "not all ranks had joined"
            self.launcher.say(f"not rehearsed: {fault}: {why}")


PART = FaultRehearsal

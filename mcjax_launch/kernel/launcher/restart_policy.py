"""Whether a job that has failed is worth another attempt, and on which hosts; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.root_cause import JobStopped, NotStarted, RankFailed
from mcjax_launch.diagnosis.summary import duration
from mcjax_launch.diagnosis.victims import is_victim
from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.wire.exit_status import HOST_LOST
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.runs.rank_run import RankRun

# Two attempts have come equally far if the times differ by no more than this, or this share.
_ALIKE_S, _ALIKE_SHARE = 2.0, 0.25
# So many attempts that failed by a signal or a loss wear a host out.
_WORN = 2
_WORDS = {"host": "a lost host", "signal": "a signal"}


class Crash(Value):
    """An exception that has ended an attempt.

    Args:
        exception: the name of its class.
        where: the user's line that raised it.
        joined: after initialize().
        age_s: how far the program had come, in seconds since its start, or since initialize().

    """

    exception: str
    where: str
    joined: bool
    age_s: float

    def is_again(self, other: Crash) -> bool:
        """Whether the other one is the same, no sooner and no later in the program's life."""
        if self.replaced(age_s=0.0) != other.replaced(age_s=0.0):
            return False
        ages = (self.age_s, other.age_s)
        return max(ages) - min(ages) <= max(_ALIKE_S, _ALIKE_SHARE * max(ages))


class AttemptEnd(Value):
    """How an attempt has failed.

    Args:
        kind: "host" (lost, or out of reach), "signal" (it killed a rank) or "other".
        hosts: that were lost, or on which that rank ran; none for "other".
        crash: the exception that did it, if one did.

    """

    kind: str
    hosts: tuple[str, ...] = ()
    crash: Crash | None = None


def end_of(attempt: Attempt, lost: Collection[Host]) -> AttemptEnd:
    """How an attempt has failed; `lost` are the hosts that it has lost."""
    match attempt.summary.ending:
        case RankFailed(culprit=run) if run.status is not None and run.status < 0 and run.failed:
            if run.hidden_failure is None and not is_victim(run):
                return AttemptEnd("signal", (run.host,))
            return AttemptEnd("other", crash=_crash(run))
        case RankFailed(culprit=run):
            return AttemptEnd("other", crash=_crash(run))
        case JobStopped() | NotStarted() as ending if ending.status == HOST_LOST:
            return AttemptEnd("host", tuple(sorted({host.name for host in lost})))
    return AttemptEnd("other")


def _crash(run: RankRun) -> Crash | None:
    failure, since = run.failure, run.membership.joined_at or run.process.started_at
    if failure is None or failure.exited or not failure.where or is_victim(run):
        return None
    if run.failed_at is None or since is None:
        return None
    joined = run.membership.joined_at is not None
    return Crash(failure.exception, failure.where, joined, run.failed_at - since)


class RestartPolicy:
    """Judges the attempts of a job, one after another.

    Args:
        restart_on: the option: of "host", "signal" and "any".

    Attributes:
        worn_out: the hosts on which too many attempts have failed by a signal or a loss.

    """

    def __init__(self, restart_on: Sequence[str]) -> None:
        self._restart_on = restart_on
        self._last: Crash | None = None
        self._failures: Counter[str] = Counter()  # by host
        self.worn_out: set[str] = set()

    def failed(self, end: AttemptEnd) -> str:
        """An attempt has failed: why there is to be no other; "" if there may be."""
        before, self._last = self._last, end.crash
        self._failures.update(end.hosts)
        self.worn_out = {host for host, count in self._failures.items() if count >= _WORN}
        if "any" not in self._restart_on and end.kind not in self._restart_on:
            wanted = " or ".join(_WORDS[word] for word in self._restart_on)
            return f"not restarted: --restart-on {','.join(self._restart_on)} is for {wanted}"
        if before is not None and end.crash is not None and end.crash.is_again(before):
            times = f"{duration(before.age_s)} and {duration(end.crash.age_s)}"
            since = "initialize()" if end.crash.joined else "the start"
            what = f"{end.crash.exception} at {end.crash.where}"
            return f"not restarted: {what} twice in a row, {times} after {since}: not bad luck"
        return ""

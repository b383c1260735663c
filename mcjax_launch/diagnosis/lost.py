"""Exceptions of threads, futures and callbacks: told where a job hangs or fails; pure."""

from collections.abc import Collection, Iterable, Iterator

from mcjax_launch.diagnosis.summary import headline
from mcjax_launch.kernel.wire.hook_messages import ErrorLost, Raised
from mcjax_launch.runs.rank_run import LostError, RankRun
from mcjax_launch.runs.state import RunState
from mcjax_launch.wording import lasting

# So many are told, the latest of each rank.
_MOST = 4


def lost_errors(
    state: RunState, now: float, first: Collection[int] = (), *, ago: str = "ago", told: str = ""
) -> list[str]:
    """Lines on the exceptions that nobody has seen to.

    Args:
        state: of the run.
        now: in time.monotonic's seconds.
        first: the ranks whose come first.
        ago: what the times are before.
        told: what has been said: one that is quoted there is not told again.

    """
    runs = sorted(state.ranks.values(), key=lambda run: run.process_id not in first)
    return list(_lines(runs, now, ago, told))[:_MOST]


def is_told(error: ErrorLost, told: str) -> bool:
    """Whether a text has the exception: who waits for a thread or a callback raises it again."""
    raised, line = error.raised, headline(error.raised)
    if not error.callback:
        return line in told
    return (line.partition(": ")[2] or raised.exception) in told  # JAX's own, with that message


def failed_callback(state: RunState) -> tuple[RankRun, str] | None:
    """A rank that has not failed, but a callback of it: others may wait for its program in vain.

    With what the callback did, in words that follow the rank's name.
    """
    for run in state.ranks.values():
        failed = [lost.error for lost in run.lost.values() if lost.error.callback]
        if failed and not run.failed:
            error = failed[-1]
            return run, f"raised in its {error.callback}: {_raised(error.raised)}"
    return None


def _lines(runs: Iterable[RankRun], now: float, ago: str, told: str) -> Iterator[str]:
    for run in runs:
        for lost in sorted(run.lost.values(), key=lambda lost: -lost.at)[:_MOST]:
            if not is_told(lost.error, told):
                yield f"rank {run.process_id}'s {_words(lost, now, ago)}"


def _words(lost: LostError, now: float, ago: str) -> str:
    error = lost.error
    thread = error.callback or (f"thread {error.thread}" if error.thread else "a thread")
    did = "failed" if error.of_future or error.callback else "ended"
    unread = " (nobody has read it from its future)" if error.of_future else ""
    when = f"{lasting(max(now - lost.at, 0.0))} {ago}"
    return f"{thread} {did} {when}: {_raised(error.raised)}{unread}"


def _raised(raised: Raised) -> str:
    return headline(raised) + (f", at {raised.where}" if raised.where else "")

"""Exceptions that ended threads, or were lost in futures: told where a job hangs or fails; pure."""

from collections.abc import Collection, Iterable, Iterator

from mcjax_launch.diagnosis.summary import headline
from mcjax_launch.runs.rank_run import LostError, RankRun
from mcjax_launch.runs.state import RunState
from mcjax_launch.wording import lasting

# So many are told, the latest of each rank.
_MOST = 4


def lost_errors(
    state: RunState, now: float, first: Collection[int] = (), *, ago: str = "ago"
) -> list[str]:
    """Lines on the exceptions that nobody has seen to.

    Args:
        state: of the run.
        now: in time.monotonic's seconds.
        first: the ranks whose come first.
        ago: what the times are before.

    """
    runs = sorted(state.ranks.values(), key=lambda run: run.process_id not in first)
    return list(_lines(runs, now, ago))[:_MOST]


def _lines(runs: Iterable[RankRun], now: float, ago: str) -> Iterator[str]:
    for run in runs:
        for lost in sorted(run.lost.values(), key=lambda lost: -lost.at)[:_MOST]:
            yield f"rank {run.process_id}'s {_words(lost, now, ago)}"


def _words(lost: LostError, now: float, ago: str) -> str:
    error = lost.error
    thread = f"thread {error.thread}" if error.thread else "a thread"
    did = "failed" if error.of_future else "ended"
    unread = " (nobody has read it from its future)" if error.of_future else ""
    where = f", at {error.raised.where}" if error.raised.where else ""
    told = f"{headline(error.raised)}{where}{unread}"
    return f"{thread} {did} {lasting(max(now - lost.at, 0.0))} {ago}: {told}"

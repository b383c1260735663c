"""--status=table: a row for each rank, what it does and uses; pure."""

from collections.abc import Mapping

from mcjax_launch.diagnosis.summary import duration, fate
from mcjax_launch.kernel.launcher.progress import cores, memory, short
from mcjax_launch.ranks import counted, these_ranks
from mcjax_launch.runs.looks import Doing, Looks
from mcjax_launch.runs.place import Stage
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.state import RunState

#: So many ranks have rows at most.
MOST_ROWS = 64
# Ranks wait for one for which they did so in so many looks in a row, not long ago: of ranks that
# are equal one or another is behind in any single look.
_LOOKS, _LOOKED_S = 3, 20.0


def rows(state: RunState, now: float, most: int) -> list[str]:
    """A row for each rank; where there is no room for all, for those that differ from most others.

    Args:
        state: of the run.
        now: in time.monotonic's seconds.
        most: so many rows there may be.

    """
    awaited = _awaited(state, now)
    doing = {rank: _doing(run, awaited.get(rank, "")) for rank, run in state.ranks.items()}
    wide = max(map(len, doing.values()), default=0)
    width = len(str(len(doing) - 1))
    most = max(2, min(most, MOST_ROWS))
    shown = list(doing)
    rest: list[str] = []
    if len(shown) > most:
        words = list(doing.values())
        common = max(set(words), key=lambda one: (words.count(one), one))
        shown = [rank for rank in shown if doing[rank] != common][: most - 1]
        left = len(doing) - len(shown)
        alike = words.count(common)
        words_of_most = f"{alike} {common}, {left - alike} elsewhere" if left > alike else common
        rest = [f"{'the other' if shown else 'all'} {counted(left, 'rank')}: {words_of_most}"]
    runs = state.ranks
    return [
        f"[{rank:>{width}}] {doing[rank]:<{wide}}  {_use(runs[rank], now)}".rstrip()
        for rank in shown
    ] + rest


def _doing(run: RankRun, awaits: str) -> str:
    stage = run.place.stage
    if stage is Stage.ENDED:
        return fate(run)
    if run.compilations.under_way:
        return "compiling"
    if awaits:
        return f"waiting for {awaits}"
    if stage is Stage.JOINING:
        return "joining"
    if stage is Stage.LEAVING:
        return "finished"
    used = run.compilations.latest is not None or run.process.first_output_at is not None
    if stage in (Stage.ABSENT, Stage.IMPORTING) and not used:
        return "importing"
    return "running"


def _awaited(state: RunState, now: float) -> Mapping[int, str]:
    """For whom each rank waits, where that is known."""
    found = _seen_waiting(state.looks, now) if state.looks is not None else {}
    for _, there, missing in state.programs.waiting():
        found.update(dict.fromkeys(there, these_ranks(missing)))
    for stage, late in (
        (Stage.JOINING, (Stage.ABSENT, Stage.IMPORTING)),
        (Stage.LEAVING, (Stage.INSIDE,)),
    ):
        waiting = [rank for rank, run in state.ranks.items() if run.place.stage is stage]
        awaited = [rank for rank, run in state.ranks.items() if run.place.stage in late]
        if waiting and awaited:
            name = "rank" if len(awaited) == 1 else "ranks"
            found.update(dict.fromkeys(waiting, f"{name} {short(awaited)}"))
    return found


def _seen_waiting(looks: Looks, now: float) -> dict[int, str]:
    """For whom ranks wait by where their main threads were."""
    from mcjax_launch.diagnosis.slow import awaited_at

    moments = [one for one in looks.recent if one.known and one.at > now - _LOOKED_S][-_LOOKS:]
    if len(moments) < _LOOKS:
        return {}
    late = set.intersection(*(set(awaited_at(one)) for one in moments))
    waiting = [rank for rank, spot in moments[-1].known.items() if spot.doing is Doing.JAX]
    return dict.fromkeys(waiting, these_ranks(late)) if late else {}


def _use(run: RankRun, now: float) -> str:
    """What a rank uses, and how long ago it printed."""
    if run.status is not None:
        return ""
    many = cores(run)
    kib = run.usage.samples[-1].rss_kib if run.usage.samples else None
    parts = ["" if many is None else f"{many:.1f} cores", "" if kib is None else memory(kib)]
    text = f"{parts[0]:>10}  {parts[1]:>8}"
    at = run.process.last_output_at
    return text + (f"  last line {duration(max(1, int(now - at)))} ago" if at is not None else "")

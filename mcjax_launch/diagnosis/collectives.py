"""Ranks that ran different collectives at once, by the end that Gloo made of it; pure."""

from collections.abc import Iterable

from mcjax_launch.diagnosis.sightings import crashed_at
from mcjax_launch.kernel.wire import source_lines
from mcjax_launch.ranks import these_ranks
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.state import RunState

_MOST_GROUPS = 4


def different_collectives(state: RunState, first: RankRun) -> str:
    """That the ranks did so, each with its line as far as that is known.

    Args:
        state: of the run.
        first: the rank that noticed: as much to blame as any other.

    """
    places: dict[str, list[int]] = {}
    for run in [first, *(run for run in state.ranks.values() if run is not first)]:
        if place := _place(run):
            places.setdefault(place, []).append(run.process_id)
    groups = [f"{these_ranks(ranks)} {place}" for place, ranks in _shown(places.items())]
    where = f": {', '.join(groups)}" if groups else ""
    return f"the ranks ran different collectives{where}"


def _shown(places: Iterable[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    by_rank = sorted(places, key=lambda place: min(place[1]))
    return by_rank[:_MOST_GROUPS]


def _place(run: RankRun) -> str:
    """Where a rank was when the first one failed, or when it failed itself; "" if not known."""
    frame = crashed_at(run)
    if frame is not None:
        return _in(frame.name, f"{frame.file.rpartition('/')[2]}:{frame.line}")
    if run.failure is not None and run.failure.where:
        where, _, name = run.failure.where.rpartition(" in ")
        file, _, line = where.rpartition(":")
        return _in(name, f"{source_lines.shortened(file).rpartition('/')[2]}:{line}")
    return run.stood


def _in(name: str, line: str) -> str:
    return f"at {line}" if name == "<module>" else f"in {name} at {line}"

"""Ranks that were in different collectives, or at different barriers, at once; pure."""

from collections.abc import Iterable

from mcjax_launch.diagnosis.sightings import BARRIER, crashed_at, in_function
from mcjax_launch.diagnosis.victims import told_by
from mcjax_launch.jax_messages.lost_peer import failed_programs_barrier
from mcjax_launch.kernel.wire import source_lines
from mcjax_launch.ranks import grouped, these_ranks
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.state import RunState

_MOST_GROUPS = 4


def different_collectives(state: RunState, first: RankRun) -> str:
    """That the ranks did so, each with its line as far as that is known.

    Args:
        state: of the run.
        first: the rank that noticed: as much to blame as any other.

    """
    runs = [first, *(run for run in state.ranks.values() if run is not first)]
    places = grouped((_place(run), run.process_id) for run in runs)
    places.pop("", None)
    groups = [f"{these_ranks(ranks)} {place}" for place, ranks in _shown(places.items())]
    where = f": {', '.join(groups)}" if groups else ""
    return f"the ranks ran different collectives{where}"


def different_barriers(state: RunState) -> str:
    """That the ranks waited at barriers of other names, each with its line; "" if they did not.

    One of those has timed out.
    """
    places: dict[str, tuple[str, list[int]]] = {}
    for run in state.ranks.values():
        name, place = _barrier(run)
        if name:
            places.setdefault(name, (place, []))[1].append(run.process_id)
    if len(places) < 2:
        return ""
    groups = [f"{these_ranks(ranks)} {place}" for place, ranks in _shown(places.values())]
    return f"the ranks waited at different barriers: {', '.join(groups)}"


def _barrier(run: RankRun) -> tuple[str, str]:
    """The barrier at which a rank was last, and that in words with its line; "" for none."""
    failed = failed_programs_barrier(told_by(run))
    if failed is not None:
        return repr(failed.name), f"at the barrier {failed.name!r} {_place(run)}"
    name = run.stood.removeprefix(BARRIER).partition(" at ")[0].partition(" in ")[0]
    return (name, run.stood) if run.stood.startswith(BARRIER) else ("", "")


def _shown(places: Iterable[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    by_rank = sorted(places, key=lambda place: min(place[1]))
    return by_rank[:_MOST_GROUPS]


def _place(run: RankRun) -> str:
    """Where a rank was when the first one failed, or when it failed itself; "" if not known."""
    frame = crashed_at(run)
    if frame is not None:
        return in_function(frame.name, f"{frame.file.rpartition('/')[2]}:{frame.line}")
    if run.failure is not None and run.failure.where:
        where, _, name = run.failure.where.rpartition(" in ")
        file, _, line = where.rpartition(":")
        return in_function(name, f"{source_lines.shortened(file).rpartition('/')[2]}:{line}")
    return run.stood

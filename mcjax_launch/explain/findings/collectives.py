"""Rules on collectives and barriers that not all ranks reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mcjax_launch.explain.jax_messages import lost_peer
from mcjax_launch.explain.picture import BARRIER
from mcjax_launch.explain.root_cause import ran_other_collective
from mcjax_launch.explain.snapshots import find_crash_frame, format_place
from mcjax_launch.explain.victims import get_failure_text, is_aborted_by_jax
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.wire import source_lines

_MOST_GROUPS = 4


def different_collectives(view: View) -> Iterator[Finding]:
    """Find that the ranks ran different collectives, with each rank's line if known."""
    first = view.first
    if first is None or not ran_other_collective(first):
        return
    if (sequences := view.state.sequences) is not None and (known := sequences.conclude()):
        from mcjax_launch.explain.differences import describe

        for difference in known:
            words = "; ".join(describe(sequences, difference))
            yield Finding("different collectives", f"the ranks ran different collectives: {words}")
        return
    # The rank that noticed is as much to blame as any other.
    runs = [first, *(run for run in view.runs if run is not first)]
    places = group_by_key((_find_failure_position(run), run.process_id) for run in runs)
    places.pop("", None)
    if len(places) == 1:  # one line runs several collectives
        yield Finding(
            "different collectives", f"the ranks were in different collectives {min(places)}"
        )
        return
    groups = [
        f"{format_ranks(ranks)} {place}" for place, ranks in _select_first_places(places.items())
    ]
    where = f": {', '.join(groups)}" if groups else ""
    yield Finding("different collectives", f"the ranks ran different collectives{where}")


def different_barriers(view: View) -> Iterator[Finding]:
    """Find ranks that waited at barriers with different names until a barrier timed out."""
    if not view.gave_up:
        return
    places: dict[str, tuple[str, list[int]]] = {}
    for run in view.runs:
        name, place = _find_barrier(run)
        if name:
            places.setdefault(name, (place, []))[1].append(run.process_id)
    if len(places) > 1:
        groups = [
            f"{format_ranks(ranks)} {place}"
            for place, ranks in _select_first_places(places.values())
        ]
        words = f"the ranks waited at different barriers: {', '.join(groups)}"
        yield Finding("different barriers", words)


def _find_barrier(run: RankRun) -> tuple[str, str]:
    """Return the name of a rank's last barrier, and words with name and line; "" twice if none."""
    failed = lost_peer.find_failed_programs_barrier(get_failure_text(run))
    if failed is not None:
        return repr(failed.name), f"at the barrier {failed.name!r} {_find_failure_position(run)}"
    name = run.late_position.removeprefix(BARRIER).partition(" at ")[0].partition(" in ")[0]
    return (name, run.late_position) if run.late_position.startswith(BARRIER) else ("", "")


def _select_first_places(places: Iterable[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    by_rank = sorted(places, key=lambda place: min(place[1]))
    return by_rank[:_MOST_GROUPS]


def _find_failure_position(run: RankRun) -> str:
    """Return a rank's position when it failed, else at the first failure; "" if unknown."""
    frame = find_crash_frame(run)
    if frame is not None:
        return format_place(frame.name, f"{frame.file.rpartition('/')[2]}:{frame.line}")
    if run.failure is not None and run.failure.where:
        where, _, name = run.failure.where.rpartition(" in ")
        file, _, line = where.rpartition(":")
        return format_place(name, f"{source_lines.shorten_path(file).rpartition('/')[2]}:{line}")
    return run.late_position


def missed_barrier(view: View) -> Iterator[Finding]:
    """Find ranks that did not reach a barrier called by the user's program in time."""
    barrier = lost_peer.find_failed_programs_barrier(view.failed_text)
    processes = barrier.late if barrier is not None else ()
    late = [run for process in processes if (run := view.state.find_rank(process))]
    if barrier is not None and late:
        where = f"; it was {late[0].late_position}" if late[0].late_position else ""
        yield _make_missed_finding(
            view, late, f"did not reach the barrier {barrier.name!r} in time", where
        )


def _make_missed_finding(view: View, late: Sequence[RankRun], did: str, where: str = "") -> Finding:
    ranks = tuple(run.process_id for run in late)
    return Finding("missed", view.format_statement(ranks, did) + where, ranks)


def missed_collective(view: View) -> Iterator[Finding]:
    """Find ranks that had not reached a collective when it timed out in other ranks."""
    late = _find_late_ranks(view)
    if not late:
        return
    first = late[0]
    how, places = "did not reach", []
    if first.membership.leaving_at is not None:
        how = "finished without reaching"
    elif first.late_position:
        places.append(f"was {first.late_position}")
    if (latest := first.compilations.latest) is not None:
        places.append(f"last compiled at {latest.where}")
    where = f"; it {' and '.join(places)}" if places else ""
    yield _make_missed_finding(
        view, late, f"{how} a collective in which others gave up waiting", where
    )


def _find_late_ranks(view: View) -> list[RankRun]:
    """Return the ranks that did not reach a collective that has timed out."""
    state = view.state
    late = [run for run in view.runs if _may_not_have_come(run)]
    if not late or not lost_peer.says_timed_out(view.failed_text):
        return []
    # Others may have been ended before they could fail in the collective: they have begun it.
    awaited = {rank for gap in state.gaps for rank in gap.behind}
    # A late rank may also be another launcher's.
    known = [run for run in late if run.process_id in awaited]
    if not known:  # the rank has arrived meanwhile, too late
        named = state.find_rank(lost_peer.find_late_process(view.failed_text))
        known = [run for run in late if run is named]
    return known if known or state.has_others else [run for run in late if not run.failed]


def _may_not_have_come(run: RankRun) -> bool:
    """Return whether a rank may be missing from a collective that timed out in other ranks.

    False for a rank that failed by itself, gave up waiting, or never joined.
    """
    if run.membership.joined_at is None:
        return False
    ended = run.after_signal or is_aborted_by_jax(run)
    return not run.failed or (ended and not gave_up_waiting(run))


def gave_up_waiting(run: RankRun) -> bool:
    """Return whether a rank failed because its wait for another rank timed out."""
    return lost_peer.says_timed_out(get_failure_text(run))

"""The rank that took the others down when all that failed are victims, by JAX's messages; pure."""

from collections.abc import Iterable, Sequence

from mcjax_launch.diagnosis.initialize_calls import (
    Blame,
    elsewhere,
    other_version,
    why_failed,
    wrong_call,
)
from mcjax_launch.diagnosis.sightings import BARRIER, IN_COMPILATION, crashed_at, in_function
from mcjax_launch.diagnosis.verdict import is_aborted_by_jax, told_by
from mcjax_launch.jax_messages import lost_peer
from mcjax_launch.jax_messages.lost_peer import failed_programs_barrier
from mcjax_launch.kernel.wire import source_lines
from mcjax_launch.ranks import grouped, these_ranks
from mcjax_launch.runs.rank_run import RankRun
from mcjax_launch.runs.state import RunState

# --- different collectives or barriers at once ---

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


# --- who took the others down ---

#: What a rank did that ended as by os._exit(0).
LEFT = "exited with 0 without leaving the job (as os._exit() does), so JAX considers it dead"


def culprit_of(state: RunState, victims: Sequence[RankRun]) -> Blame | None:
    """The rank to blame for the failures of all these, as far as can be known."""
    text = "\n".join(map(told_by, victims))
    joining = any(run.membership.joined_at is None for run in victims)
    return (
        _second_process(state)
        or (joining and (wrong_call(state) or elsewhere(state) or _never_called(state)))
        or other_version(state)
        or _without_devices(state, text)
        or _silent(state, text)
        or _exit_barrier(state, text)
        or _vanished(state)
        or _failed_callback(state)
        or _programs_barrier(state, text)
        or _missed_collective(state, text)
        or None
    )


def _second_process(state: RunState) -> Blame | None:
    """A rank two processes of which take part as one: JAX ends the job for that."""
    for run in state.ranks.values():
        where = run.membership.second_process
        if where is not None:
            at = f", at {where}" if where else ""
            return Blame(
                run,
                f"called initialize() in a second process too{at}: put the code that starts "
                "processes under `if __name__ == '__main__':`",
            )
    return None


def _never_called(state: RunState) -> Blame | None:
    """A rank for which the others waited in initialize()."""
    absent = [run for run in state.ranks.values() if not run.membership.has_called]
    if not absent:
        return None
    first = min(absent, key=lambda run: (run.status is None, run.order))
    if (refused := first.membership.refused) is not None:
        went_on = "went on alone, but the others waited for it"
        return Blame(first, f"{went_on}: initialize() failed {why_failed(refused)}")
    how = "and exited with 0" if first.never_came else "while the others waited for it"
    also = _nor([run.process_id for run in absent if run is not first])
    return Blame(first, f"never called initialize(){also}, {how}")


def _without_devices(state: RunState, text: str) -> Blame | None:
    """A rank that did not tell the others its devices, or its share of a compilation."""
    key = lost_peer.missing_key(text)
    late = [run for process in key.late if (run := state.rank_of(process))] if key else []
    if key is None or not late:
        return None
    first = late[0]
    also = _nor([run.process_id for run in late[1:]])
    backend, stood = first.membership.backend, f"; it was {first.stood}" if first.stood else ""
    if not key.platform:
        return Blame(
            first, f"did not come to a compilation that the others shared with it{also}{stood}"
        )
    if backend is not None and backend.platform == "cpu":
        why = f" ({backend.why})" if backend.why else ""
        return Blame(first, f"uses the CPU{why}: the others waited for its {key.platform} devices")
    return Blame(first, f"did not start a backend for {key.platform} in time{also}{stood}")


def _silent(state: RunState, text: str) -> Blame | None:
    """A rank that stopped sending heartbeats."""
    run = state.rank_of(lost_peer.silent_process(text))
    if run is None:
        return None
    if run.status == 0:
        return Blame(run, LEFT)
    return Blame(
        run,
        "stopped sending heartbeats: it was stopped or swapped out, or held the GIL, for longer "
        "than initialize()'s heartbeat_timeout_seconds",
    )


def _vanished(state: RunState) -> Blame | None:
    """A rank that exited with 0 although its program had not come to its end."""
    gone = (Blame(run, LEFT) for run in state.ranks.values() if run.vanished)
    return next(gone, None)


def _failed_callback(state: RunState) -> Blame | None:
    """A rank whose callback has failed: it does not finish the program in which the others are."""
    if not any(run.lost for run in state.ranks.values()):
        return None
    from mcjax_launch.diagnosis.hints import failed_callback

    found = failed_callback(state)
    return Blame(*found) if found is not None else None


def _programs_barrier(state: RunState, text: str) -> Blame | None:
    """A rank that did not reach a barrier of the program's own in time."""
    barrier = lost_peer.failed_programs_barrier(text)
    late = [run for process in barrier.late if (run := state.rank_of(process))] if barrier else []
    if barrier is None or not late:
        return None
    also = _nor([run.process_id for run in late[1:]])
    stood = f"; it was {late[0].stood}" if late[0].stood else ""
    return Blame(late[0], f"did not reach the barrier {barrier.name!r} in time{also}{stood}")


def _nor(others: Sequence[int]) -> str:
    return f" (nor did {these_ranks(others)})" if others else ""


def _missed_collective(state: RunState, text: str) -> Blame | None:
    """A rank for which a collective did not wait any longer."""
    late = [run for run in state.ranks.values() if _may_not_have_come(run)]
    if not late or not lost_peer.says_timed_out(text):
        return None
    # Others may have been ended before they could fail in the collective: they have begun it.
    awaited = {rank for _, _, missing in state.programs.waiting() for rank in missing}
    # Where other launchers have ranks too, it may be one of those that did not come.
    known = [run for run in late if run.process_id in awaited]
    if not known:  # it has come meanwhile, too late
        named = state.rank_of(lost_peer.late_for_gloo(text))
        known = [run for run in late if run is named]
    late = known if known or state.has_others else [run for run in late if not run.failed]
    if not late:
        return None
    also = _nor([run.process_id for run in late[1:]])
    first, how, places = late[0], "did not reach", []
    if first.stood.startswith(IN_COMPILATION):
        missed = "and so missed a collective in which others gave up waiting"
        return Blame(first, f"was {first.stood}, {missed}{also}")
    if first.membership.leaving_at is not None:
        how = "finished without"
    elif first.stood:
        places.append(f"was {first.stood}")
    if (latest := first.compilations.latest) is not None:
        places.append(f"last compiled at {latest.where}")
    where = f"; it {' and '.join(places)}" if places else ""
    return Blame(first, f"{how} a collective in which others gave up waiting{also}{where}")


def _may_not_have_come(run: RankRun) -> bool:
    """Whether others may have waited for a rank, whose own failure, if any, came of theirs."""
    if run.membership.joined_at is None:
        return False
    ended = run.after_signal or is_aborted_by_jax(run)
    return not run.failed or (ended and not gave_up_waiting(run))


def gave_up_waiting(run: RankRun) -> bool:
    """Whether a rank has failed since another one did not come in time."""
    return lost_peer.says_timed_out(told_by(run))


def _exit_barrier(state: RunState, text: str) -> Blame | None:
    """A rank that waited in the exit barrier for longer than its timeout allows."""
    barrier = lost_peer.failed_exit_barrier(text)
    run = state.rank_of(barrier.first) if barrier is not None else None
    if barrier is None or run is None:
        return None
    late = [late.process_id for process in barrier.late if (late := state.rank_of(process))]
    waited_for = f" for {these_ranks(late)}" if late else ""
    return Blame(
        run,
        f"finished and waited in JAX's exit barrier{waited_for}, longer than the "
        "shutdown_timeout_seconds of its initialize()",
    )

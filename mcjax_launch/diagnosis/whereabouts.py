"""Where the ranks of a job that hangs are, and what to try; pure."""

from collections.abc import Iterable

from mcjax_launch.diagnosis.hints import Hang, guarded, hang_hints, lost_errors, waits_for_ever
from mcjax_launch.diagnosis.initialize_calls import (
    how_absent,
    kept_apart,
    other_setting,
    placed,
    wrong_call,
)
from mcjax_launch.diagnosis.spmd import divergence_lines
from mcjax_launch.diagnosis.waits import idle_compilation_lines
from mcjax_launch.ranks import grouped, have, these_ranks
from mcjax_launch.runs.rank_run import RankRun, Stage
from mcjax_launch.runs.spmd import titled
from mcjax_launch.runs.state import RunState

# Those that run, and where they should not stay.
_STAYS = {
    Stage.ABSENT: "never called initialize()",
    Stage.JOINING: "waiting in initialize()",
    Stage.ALONE: "running alone, after initialize() failed",
    Stage.LEAVING: "waiting for the others in JAX's exit barrier",
}


def whereabouts(state: RunState, now: float, *, jax: bool = False) -> list[str]:
    """Lines on where the ranks of a job are.

    Args:
        state: of the run.
        now: in time.monotonic's seconds.
        jax: it is known that they ought to use it.

    """
    if not jax and not _uses_jax(state):
        return []
    idle = idle_compilation_lines(state)
    others = (run for run in state.running if run.process_id not in state.idle_compilations)
    lines = _stages(state) + _blames(state) + idle + _compiled(others) + lost_errors(state, now)
    if state.diverged:
        return [*lines, "the ranks ran different programs:", *divergence_lines(state.programs)]
    return lines + _behind(state)


def hints(state: RunState, *, moves: bool = False) -> list[str]:
    """Lines on what to try with a job that hangs, if nobody holds it up in a debugger.

    Args:
        state: of the run.
        moves: it may not hang, but only be long.

    """
    return guarded(state, lambda: _hints(state, moves=moves))


def _hints(state: RunState, *, moves: bool) -> list[str]:
    compiling = {run.process_id for run in state.running if run.compilations.under_way}
    idle = state.idle_compilations.keys()
    if state.pause.is_on or state.diverged or compiling - idle or not _uses_jax(state):
        return []
    hang = Hang.COMPILING if idle else _hang(state)
    if hang is None or (moves and hang is Hang.UNKNOWN):
        return []
    endless = waits_for_ever(state)
    return hang_hints(hang, endless_on_cpu=endless, verified=state.programs.held_any)


def _hang(state: RunState) -> Hang | None:
    """What it looks like; None where what ranks wait for has been shown, or is not known."""
    stages = {run.place.stage for run in state.ranks.values()}
    if any(run.never_came for run in state.ranks.values()):
        return Hang.RANK_GONE
    if Stage.ABSENT in stages:
        return Hang.RANK_ABSENT
    through = [run.place.stage for run in state.running if run.place.is_through]
    if all(stage in (Stage.LEFT, Stage.ALONE) for stage in through):
        return None
    if state.programs.waiting():
        return Hang.RANK_BEHIND
    return Hang.RANK_LEAVING if Stage.LEAVING in stages else Hang.UNKNOWN


def _uses_jax(state: RunState) -> bool:
    return any(run.membership.joining_at is not None for run in state.running)


def _stages(state: RunState) -> list[str]:
    groups = grouped((_stage(run), rank) for rank, run in state.ranks.items())
    groups.pop("", None)
    return [f"{placed(state, ranks)}: {stage}" for stage, ranks in groups.items()]


def _stage(run: RankRun) -> str:
    """How far a rank has got; "" in the middle of its program, as it should be."""
    if run.status == 0:
        return "exited with 0" + (f" {how_absent(run)}" if run.never_came else "")
    return _STAYS.get(run.place.stage, "")


def _blames(state: RunState) -> list[str]:
    """Why ranks may wait for one another, in initialize() or later."""
    joining = any(run.place.stage is Stage.JOINING for run in state.running)
    blames = [wrong_call(state) if joining else None, kept_apart(state), other_setting(state)]
    return [str(blame) for blame in blames if blame is not None]


def _compiled(runs: Iterable[RankRun]) -> list[str]:
    """What each rank compiled last, and from which line."""
    groups = grouped((_latest(run), run.process_id) for run in runs)
    groups.pop("", None)
    return [f"{these_ranks(ranks)}: {line}" for line, ranks in groups.items()]


def _latest(run: RankRun) -> str:
    """What a rank compiles or compiled last; "" where nothing is expected of it yet."""
    latest = run.compilations.latest
    if latest is None:
        return "nothing compiled yet" if run.place.is_through else ""
    what = f"{titled(latest.name)} at {latest.where or 'an unknown line'}"
    return f"compiling {what}" if run.compilations.under_way else f"last compiled {what}"


def _behind(state: RunState) -> list[str]:
    """Programs that some ranks wait in and others, which take part, have not reached."""
    lines = []
    for program, there, missing in state.programs.waiting():
        what = f"{program.title} at {program.where}" if program.where else program.title
        late = f"{these_ranks(missing)} {have(missing)}"
        lines.append(f"{these_ranks(there)}: waiting in {what}, which {late} not reached")
    return lines

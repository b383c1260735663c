"""Words for a wait: who waits, where, for how long, and what those that are awaited do; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from mcjax_launch.explain.findings.alone import explain_refusal
from mcjax_launch.explain.findings.joining import wrong_address, wrong_call
from mcjax_launch.explain.findings.settings import other_version
from mcjax_launch.explain.snapshots import RankSnapshot
from mcjax_launch.explain.view import View
from mcjax_launch.explain.waits.wait import Cause, Wait, group_by_place
from mcjax_launch.journal.programs import format_title
from mcjax_launch.journal.rank_run import Stage
from mcjax_launch.ranks import format_all_ranks, format_count, format_ranks, inflect_have
from mcjax_launch.wording import format_rough_duration

if TYPE_CHECKING:
    from mcjax_launch.journal.sequences import Gap

# At most this many places are shown.
_MOST_GROUPS = 2


def describe_wait(view: View, wait: Wait) -> str:
    """Describe a wait in one line."""
    told = [idle.describe(view.now) for idle in wait.compiling[:_MOST_GROUPS]]
    if wait.waiting:
        told.append(_describe_waiting_ranks(view, wait))
    elif awaited := _describe_awaited(view, wait):
        is_one = sum(len(idle.ranks) for idle in wait.compiling) == 1
        told[-1] += f": {'it waits' if is_one else 'they wait'} for {awaited}"
    return "; ".join(told)


def _describe_waiting_ranks(view: View, wait: Wait) -> str:
    groups = [f"{format_ranks(ranks)} {where}" for where, ranks in wait.waiting[:_MOST_GROUPS]]
    for_long = format_rough_duration(view.now - wait.since)
    if wait.cause is Cause.UNKNOWN:
        count = format_all_ranks(sum(len(ranks) for _, ranks in wait.waiting))
        return f"{count} have stood still for {for_long}, not in JAX: {_format_list(groups)}"
    awaited = _describe_awaited(view, wait)
    if others := [rank for _, ranks in wait.waiting[_MOST_GROUPS:] for rank in ranks]:
        groups.append(f"{format_ranks(others)} elsewhere")
    if len(groups) > 1:
        return f"{_format_list(groups)} have waited {for_long} for {awaited}"
    where, ranks = wait.waiting[0]
    if wait.gap is not None:
        where = _describe_program(where, wait.gap)
    return f"{format_ranks(ranks)} {inflect_have(ranks)} waited {for_long} {where} for {awaited}"


def _describe_program(where: str, gap: Gap) -> str:
    """Return words for a place at which ranks wait in a program."""
    call, _, line = where.rpartition("at ")
    if line == gap.program.where:
        name = call.removeprefix("in ").rstrip() or gap.program.title
        return f"in program {gap.number:,}, {name} at {line},"
    return f"{where}, in program {gap.number:,} ({gap.program}),"


# --- what is awaited ---


def _describe_awaited(view: View, wait: Wait) -> str:
    """Describe what ranks wait for; "" if that is unknown."""
    if wait.cause is Cause.ABSENT:
        return _describe_absent_ranks(view, wait)
    if wait.cause is Cause.COMPILATION:
        return format_ranks(seen.run.process_id for seen in wait.awaited)
    if wait.cause is Cause.JOINING:
        return f"one another: {_explain_joining(view, wait)}"
    return str(wait.cause)


def _describe_absent_ranks(view: View, wait: Wait) -> str:
    gap = wait.gap if len(wait.waiting) == 1 else None
    by_rank = {seen.run.process_id: seen for seen in wait.awaited}
    doing = group_by_place(
        (rank, _describe_activity([seen], gap)) for rank, seen in by_rank.items()
    )
    groups = [
        f"{view.format_ranks(ranks)}, which {_describe_activity([by_rank[r] for r in ranks], gap)}"
        for _, ranks in doing[:_MOST_GROUPS]
    ]
    omitted = len(doing) - _MOST_GROUPS
    return _format_list([*groups, *([f"others in {omitted} more places"] if omitted > 0 else [])])


def _explain_joining(view: View, wait: Wait) -> str:
    """Return why ranks wait for one another in initialize(), as far as that is known."""
    found = chain.from_iterable(rule(view) for rule in (wrong_call, other_version, wrong_address))
    if (finding := next(iter(found), None)) is not None:
        return finding.words
    ranks = (rank for _, ranks in wait.waiting for rank in ranks)
    calls = (view.state.ranks[rank].membership.call for rank in ranks)
    address = next(call.coordinator_address for call in calls if call is not None)
    return f"can they all reach {address}?"


# --- what absent ranks do, of which all do the same ---


def _describe_activity(same: Sequence[RankSnapshot], gap: Gap | None) -> str:
    """Describe the activity of absent ranks, with the number of their latest program if known."""
    if gap is None:
        return _describe_place(same, with_program=True)
    have, place = "have" if len(same) > 1 else "has", _describe_place(same, with_program=False)
    joint = "," if place.startswith(f"{have} ") else " and"
    count = f"{gap.number - 1:,}" if gap.number > 1 else "none"
    return f"{have} run {count}{joint} {place}"


def _describe_place(same: Sequence[RankSnapshot], *, with_program: bool) -> str:
    """Describe what absent ranks do; with the program that they compiled last, if asked to."""
    seen = same[0]
    are, have = ("are", "have") if len(same) > 1 else ("is", "has")
    if seen.run.status == 0:
        return "exited with 0"
    if seen.run.is_gone:
        return f"{have} failed"
    if seen.reached.stage is Stage.LEAVING:
        count = seen.run.programs.total if with_program else 0
        ran = f"{have} run {format_count(count, 'program')}, " if count else ""
        return f"{ran}{_describe_leaving_ranks(seen, are, have)}"
    if (refused := seen.run.membership.refused) is not None:
        return f"went on alone after initialize() failed {explain_refusal(refused)}"
    standing = seen.position_with_threads
    if seen.reached.stage in (Stage.ABSENT, Stage.IMPORTING):
        return f"{have} not called it" + (f" and {are} {standing}" if standing else "")
    if standing:
        latest = seen.run.compilations.latest if with_program else None
        last = f" (last compiled {format_title(latest.name)} at {latest.where})" if latest else ""
        return f"{are} {standing}{last}"
    if seen.stack is None:
        return f"{are} elsewhere"
    return f"shows no Python stack: {seen.stack.state}"


def _describe_leaving_ranks(seen: RankSnapshot, are: str, have: str) -> str:
    """Describe ranks that have finished or call shutdown()."""
    place = str(seen.reached)
    if seen.is_in_users_code and seen.is_in_exit_barrier:
        return f"{are} {place}, {seen.blocked_at}"
    where = seen.position_with_threads if seen.is_in_users_code else place
    return f"{have} finished and {are} {where}"


def _format_list(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

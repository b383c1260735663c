"""Rules on ranks that run as separate single-process jobs, or whose child processes join."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.jax_messages.known_errors import KnownError, find_known_error
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.ranks import format_all_ranks, format_ranks, group_by_key
from mcjax_launch.wire.hook_messages import CalledBelow, NotJoined
from mcjax_launch.wire.timers import scale_time

#: A rank that has compiled or printed for this many seconds without joining never joins.
SOON_S = scale_time(10.0)
_MOST_SUMMARY = 110
_GUARD = 'put the call under `if __name__ == "__main__":`'


def lone_ranks(view: View) -> Iterator[Finding]:
    """Find ranks that go on as single-process jobs because initialize() failed."""
    alone = [run for run in view.runs if run.was_alone]
    size = view.state.num_processes
    if not alone or size < 2:
        return
    first, count = alone[0].membership, len(alone)
    if count == size:
        what, whose = f"these are {count} separate single-process jobs", format_all_ranks(count)
    else:
        jobs = "is a single-process job" if count == 1 else "are single-process jobs"
        ranks = view.format_ranks([run.process_id for run in alone])
        what, whose = f"{ranks} {jobs}, separate from the others", "it" if count == 1 else "them"
    assert first.refused is not None
    at = f" at {first.call.where}" if first.call is not None and first.call.where else ""
    yield Finding(
        "alone",
        f"{what}: initialize(){at} failed in {whose} {explain_refusal(first.refused)}",
        tuple(run.process_id for run in alone),
        due=(first.refused_at or 0.0) + SOON_S,
        is_urgent=True,
    )


def explain_refusal(refused: NotJoined) -> str:
    """Return the reason, and cure if known, of a failed initialize(); to follow "failed"."""
    too_late = find_known_error(refused.summary) is KnownError.INITIALIZED_TOO_LATE
    if too_late and refused.backend_at:
        at = refused.backend_at
        return f"because {at} had already started a backend: call initialize() before that line"
    said = f"with {refused.exception}: {refused.summary}"
    return said if len(said) <= _MOST_SUMMARY else said[:_MOST_SUMMARY] + "..."


def single_process_calls(view: View) -> Iterator[Finding]:
    """Find that every rank called initialize() with num_processes=1."""
    count, calls = view.state.num_processes, view.calls
    if count < 2 or len(calls) < len(view.runs):
        return
    if all(call.num_processes == 1 for _, call in calls):
        at = f" at {calls[0][1].where}" if calls[0][1].where else ""
        yield Finding(
            "single processes",
            f"these ran as {len(calls)} separate single-process jobs: each rank called "
            f"initialize(){at} with num_processes=1{_suggest_command(view)}",
        )


def separate_jobs(view: View) -> Iterator[Finding]:
    """Find that no rank has called initialize(), although several use JAX."""
    state = view.state
    if state.initialize_calls or state.num_processes < 2 or state.activity.jax_at is None:
        return
    jobs = f"{state.num_processes} separate single-process jobs"
    if not state.running:
        if all(run.membership.imported for run in view.runs):
            said = "no rank called jax.distributed.initialize()"
            yield Finding("separate", f"{said}: these ran as {jobs}{_suggest_command(view)}")
        return
    words = (
        f"no rank has called jax.distributed.initialize(): these run as {jobs}"
        f"{_suggest_command(view) or '; call it before any other use of JAX'}"
    )
    soon = state.activity.jax_at + SOON_S
    if view.now >= soon and sum(_uses_jax(run, view.now) for run in state.running) < 2:
        while soon <= view.now:  # ask again, ever more seldom
            soon += soon - state.activity.jax_at + SOON_S
    yield Finding("separate", words, due=soon, is_urgent=True)


def _suggest_command(view: View) -> str:
    """Return the command that passes PROGRAM its coordinates, to append to a line; or ""."""
    command = view.state.suggest()
    return f"; its coordinates come from arguments: run {command}" if command else ""


def _uses_jax(run: RankRun, now: float) -> bool:
    """Return whether a rank has compiled, or imported jax and printed for `SOON_S` seconds."""
    process = run.process
    if run.compilations.latest is not None:
        return True
    if run.membership.imported is None or process.first_output_at is None:
        return False
    printed_s = (process.last_output_at or 0.0) - process.first_output_at
    return now - process.first_output_at >= SOON_S and printed_s >= SOON_S / 2


def calls_below(view: View) -> Iterator[Finding]:
    """Find calls of initialize() by child processes of ranks."""
    calls = group_by_key(
        (call, (run.process_id, at))
        for run in view.runs
        for call, at in run.membership.called_below.items()
    )
    for call, came in calls.items():
        ranks = tuple(rank for rank, _ in came)
        due = 0.0 if len(ranks) == len(view.runs) else min(at for _, at in came) + SOON_S
        words = _describe_calls_below(call, ranks)
        yield Finding(("below", call, ranks), words, ranks, due=due, is_urgent=True)


def _describe_calls_below(call: CalledBelow, ranks: tuple[int, ...]) -> str:
    several = len(ranks) > 1
    processes, these = ("processes", "they are not") if several else ("a process", "it is not a")
    at = f" at {call.where}" if call.where else ""
    cure = _GUARD if call.by_import else "call it in the rank's own process alone"
    return (
        f"{format_ranks(ranks)} started {processes} that called initialize() again{at}; {these} "
        f"rank{'s' * several}, so the call was skipped: {cure}"
    )


def second_process(view: View) -> Iterator[Finding]:
    """Find a rank that called initialize() in two processes, for which JAX ends the job."""
    for run in view.runs:
        where = run.membership.second_process
        if where is not None:
            at = f", at {where}" if where else ""
            yield Finding(
                "second process",
                f"{view.format_ranks([run.process_id])} called initialize() in a second process too"
                f"{at}: put the code that starts processes under `if __name__ == '__main__':`",
                (run.process_id,),
            )
            return

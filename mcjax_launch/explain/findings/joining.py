"""Rules on wrong arguments of initialize(): impossible, or inconsistent between ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.ranks import group_by_key
from mcjax_launch.wire.address import is_loopback, split_text
from mcjax_launch.wire.hook_messages import Joining

_OWN_ARGUMENTS = (
    "write jax.distributed.initialize() without arguments: it gets them from the launcher"
)
_WAITS_FOR_MORE = "which waits for the rest of them (--start-timeout ends such a wait)"


def impossible_call(view: View) -> Iterator[Finding]:
    """Find arguments of initialize() with which no rank's call can ever return."""
    found = (
        next(filter(None, (_find_impossible_call(view, run) for run in view.joining)), None)
        or _find_same_port(view)
        or _find_contradiction(view)
    )
    if found is not None:
        yield found.copy_with(cure=_find_cure(view), is_certain=True)


def oversized_call(view: View) -> Iterator[Finding]:
    """Find a rank that waits in initialize() with a num_processes above the job's."""
    for run in view.joining:
        if (_get_call(run).num_processes or 0) > view.state.num_processes:
            found = _make_size_finding(view, run)
            yield found.copy_with(key="oversized", words=f"{found.words}, {_WAITS_FOR_MORE}")
            return


def wrong_call(view: View) -> Iterator[Finding]:
    """Find a call of initialize() whose arguments contradict other ranks' calls or the job."""
    if not view.joining and view.first is None:
        return
    if view.first is not None and not view.failed_joining:
        return
    runs = [run for run, _ in view.calls]
    others = (run for run in runs if _is_other_size(view, run))
    found = (
        _find_same_process_id(view, runs)
        or _find_difference(view, runs, "coordinator_address")
        or _find_difference(view, runs, "num_processes")
        or next((_make_size_finding(view, run) for run in others), None)
    )
    if found is not None:
        yield found.copy_with(cure=_find_cure(view))


def wrong_address(view: View) -> Iterator[Finding]:
    """Find a call as process 0 whose coordinator_address is not an address of its machine."""
    if view.first is not None and not view.failed_joining:
        return
    for run, call in view.calls:
        if call.elsewhere:
            address = f"coordinator_address={call.coordinator_address}"
            yield _make_finding(view, run, f"{address}, which is not an address of its machine")
            return


def replaced_handler(view: View) -> Iterator[Finding]:
    """Find that JAX replaces the program's handler of SIGTERM, so that a save never happens."""
    if where := next((call.term_handler for _, call in view.calls if call.term_handler), ""):
        yield Finding(
            "replaced handler",
            f"jax.distributed.initialize() replaces the program's SIGTERM handler ({where}) by "
            "JAX's, so the program's is never called; set it after initialize()",
        )


def _find_cure(view: View) -> str:
    """Return the advice to pass a rank's own coordinates."""
    command = view.state.suggest()
    return f"{_OWN_ARGUMENTS}; or run {command}" if command else _OWN_ARGUMENTS


# --- one call ---


def _get_call(run: RankRun) -> Joining:
    assert run.membership.call is not None
    return run.membership.call


def _make_finding(view: View, run: RankRun, arguments: str) -> Finding:
    where = _get_call(run).where
    called = f"called initialize(){f' at {where}' if where else ''} with {arguments}"
    words = f"{view.format_ranks([run.process_id])} {called}"
    return Finding("wrong call", words, (run.process_id,))


def _find_impossible_call(view: View, run: RankRun) -> Finding | None:
    """Return a finding on a call that can never return, whatever other ranks do; else None."""
    call, of_job = _get_call(run), view.state.num_processes
    size, process = call.num_processes, call.process_id
    if size is None:
        return None
    outside = process is not None and not 0 <= process < size
    # At an address of the program's own, processes may take part that are not this launcher's.
    ours = _is_local(call) or call.coordinator_address == view.state.coordinator
    if size != of_job and (outside or (size > of_job and ours)):
        return _make_size_finding(view, run, f"process_id={process} and " if outside else "")
    if outside:
        return _make_finding(
            view, run, f"process_id={process}, which is not one of 0 to {size - 1}"
        )
    return None


def _is_local(call: Joining) -> bool:
    return is_loopback(split_text(call.coordinator_address)[0])


def _is_other_size(view: View, run: RankRun) -> bool:
    return _get_call(run).num_processes != view.state.num_processes


def _make_size_finding(view: View, run: RankRun, also: str = "") -> Finding:
    size = _get_call(run).num_processes
    return _make_finding(
        view, run, f"{also}num_processes={size}, but the job has {view.state.num_processes}"
    )


# --- several calls ---


def _find_same_port(view: View) -> Finding | None:
    """Return a finding on calls for one process each with the same port; JAX aborts one of them.

    The rank to blame is the last to have called. None if there are no such calls.
    """
    alone = (
        (run, call)
        for run, call in view.calls
        if call.num_processes == 1 and not run.is_gone
        if not run.membership.left and run.membership.refused is None
    )
    ports = group_by_key(((run.host, call.coordinator_address), run) for run, call in alone)
    taken = next((runs for runs in ports.values() if len(runs) > 1), None)
    if taken is None:
        return None
    calls = ((run.membership.joining_at or 0.0, run.process_id) for run in taken)
    _, latest = max(calls)
    return _make_size_finding(view, view.state.ranks[latest])


def _find_contradiction(view: View) -> Finding | None:
    """Return a finding on calls at one address that contradict each other.

    Either two have the same process_id, or their num_processes differ. None if neither holds.
    """
    waiting = ((_get_call(run), run) for run in view.joining)
    places = group_by_key(
        ((call.coordinator_address, run.host if _is_local(call) else ""), run)
        for call, run in waiting
        if call.num_processes is not None
    )
    for runs in places.values():
        several = [run for run in runs if _get_call(run).num_processes != 1]
        if (found := _find_same_process_id(view, several)) is not None:
            return found
        if len({_get_call(run).num_processes for run in runs}) > 1:
            return _make_size_finding(view, next(run for run in runs if _is_other_size(view, run)))
    return None


def _find_same_process_id(view: View, runs: Sequence[RankRun]) -> Finding | None:
    """Return a finding on two calls with the same process_id; None if there are none.

    The rank to blame is the one whose rank number is not the process_id.
    """
    seen: dict[int, RankRun] = {}
    for second in runs:
        process = _get_call(second).process_id
        first = second if process is None else seen.setdefault(process, second)
        if first is not second:
            other, run = (second, first) if process == second.process_id else (first, second)
            own = f"; its own is {run.process_id}" if process != run.process_id else ""
            same = f"the same as rank {other.process_id}"
            return _make_finding(view, run, f"process_id={process}, {same}{own}")
    return None


def _find_difference(view: View, runs: Sequence[RankRun], argument: str) -> Finding | None:
    values = [getattr(_get_call(run), argument) for run in runs]
    usual = Counter(values).most_common(1)[0][0] if values else None
    for run, value in zip(runs, values, strict=True):
        if value != usual:
            return _make_finding(view, run, f"{argument}={value}, where the others have {usual}")
    return None

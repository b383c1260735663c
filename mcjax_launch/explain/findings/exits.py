"""Rules on ranks that exited without leaving the JAX job, or stopped sending heartbeats."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.jax_messages import lost_peer
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.ranks import format_ranks

_LEFT = "exited with 0 without leaving the job (as os._exit() does), so JAX considers it dead"
_SILENT = (
    "stopped sending heartbeats: it was stopped or swapped out, or held the GIL, for longer than "
    "initialize()'s heartbeat_timeout_seconds"
)


def silent(view: View) -> Iterator[Finding]:
    """Find a rank that stopped sending heartbeats."""
    run = view.state.find_rank(lost_peer.find_silent_process(view.failed_text))
    if run is not None:
        yield _make_finding(view, run, _LEFT if run.status == 0 else _SILENT)


def vanished(view: View) -> Iterator[Finding]:
    """Find ranks that exited with 0 in the middle of their programs, as os._exit(0) does.

    There is a finding only while ranks run, or after a rank has failed.
    """
    ranks = [run.process_id for run in view.runs if run.vanished]
    if ranks and (view.state.running or view.first is not None):
        also = f" (as did {format_ranks(ranks[1:])})" if ranks[1:] else ""
        words = f"{view.format_ranks(ranks[:1])} {_LEFT}{also}"
        yield Finding("vanished", words, tuple(ranks))


def failed_exit_barrier(view: View) -> Iterator[Finding]:
    """Find a rank whose wait in JAX's exit barrier timed out, and the ranks it waited for."""
    barrier = lost_peer.find_failed_exit_barrier(view.failed_text)
    run = view.state.find_rank(barrier.first) if barrier is not None else None
    if barrier is None or run is None:
        return
    late = [late.process_id for process in barrier.late if (late := view.state.find_rank(process))]
    waited_for = f" for {format_ranks(late)}" if late else ""
    yield _make_finding(
        view,
        run,
        f"finished and waited in JAX's exit barrier{waited_for}, longer than the "
        "shutdown_timeout_seconds of its initialize()",
    )


def _make_finding(view: View, run: RankRun, what: str) -> Finding:
    rank = run.process_id
    return Finding(("left", rank), f"{view.format_ranks([rank])} {what}", (rank,))

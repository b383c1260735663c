"""Rules on exceptions that have not failed the program: in threads, callbacks, and logged ones."""

from __future__ import annotations

from collections.abc import Iterator

from mcjax_launch.explain.jax_messages.lost_peer import is_of_lost_peer
from mcjax_launch.explain.jax_messages.tracebacks import Traceback, find_tracebacks
from mcjax_launch.explain.snapshots import find_crash_frame
from mcjax_launch.explain.view import View
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.headline import extract_headline, shorten_line
from mcjax_launch.journal.rank_run import ErrorReport, RankRun, Stage
from mcjax_launch.wire.hook_messages import Raised, UnhandledError
from mcjax_launch.wire.source_lines import format_path, is_users
from mcjax_launch.wording import format_rough_duration

_CLEAN_UP = (
    "clean-up that computes with the other ranks must run in all of them, or in none: a `finally:` "
    "or `with` runs in a rank that fails alone, too"
)
# At most this many are printed, the latest of each rank.
_MOST = 4


def unhandled_errors(view: View) -> Iterator[Finding]:
    """Find unhandled exceptions: first the culprit's, then those of late ranks."""
    runs = view.runs
    if not any(run.unhandled_errors for run in runs):
        return
    errors = (
        (run, lost)
        for run in sorted(
            runs, key=lambda run: (run is not view.culprit, run.process_id not in view.late)
        )
        for lost in sorted(run.unhandled_errors, key=lambda lost: -lost.at)[:_MOST]
    )
    untold = [(run, lost) for run, lost in errors if not mentions(lost.error, view.said)]
    for run, lost in untold[:_MOST]:
        words = f"rank {run.process_id}'s {_describe_error(view, lost)}"
        yield Finding(("error", run.process_id, lost.at), words, (run.process_id,))


def mentions(error: UnhandledError, said: str) -> bool:
    """Return whether printed text already contains an unhandled exception's line or message."""
    raised, line = error.raised, extract_headline(error.raised)
    if not error.callback:
        return line in said
    return (line.partition(": ")[2] or raised.exception) in said  # JAX's own, with that message


def failed_clean_up(view: View) -> Iterator[Finding]:
    """Find a rank that failed in clearing up after an exception, for which others did not come.

    Ranks that all compute while they handle exceptions do so on purpose.
    """
    found = [(run, *failed) for run in view.runs if (failed := _find_clean_up(run)) is not None]
    if not found or len(found) == len(view.runs):
        return
    run, raised, where = min(found, key=lambda each: each[0].order)
    rank = run.process_id
    words = (
        f"{view.format_ranks([rank])} raised {_format_exception(raised)}; then its clean-up waited "
        f"for other ranks at {where}"
    )
    yield Finding(("clean-up", rank), words, (rank,), cure=_CLEAN_UP)


def _find_clean_up(run: RankRun) -> tuple[Raised, str] | None:
    """Return the exception that a rank was handling when it failed, and where; None if none."""
    failure, handling = run.failure, run.handling
    if failure is not None and failure.before is not None and failure.where:
        is_own = not is_of_lost_peer(failure.before.exception, failure.before.summary)
        is_lost = is_of_lost_peer(failure.exception, failure.summary)
        return (failure.before, failure.where) if is_own and is_lost else None
    if failure is not None or handling is None or (frame := find_crash_frame(run)) is None:
        return None
    is_there = f"/{frame.file}:{frame.line}".endswith(f"/{handling.where}")
    return (handling.raised, handling.where) if is_there else None


def failed_callback(view: View) -> Iterator[Finding]:
    """Find a rank that has not failed itself, but whose callback raised an exception."""
    for run in view.runs:
        failed = [lost.error for lost in run.unhandled_errors if lost.error.callback]
        if failed and not run.failed:
            name, error = view.format_ranks([run.process_id]), failed[-1]
            words = f"{name} raised in its {error.callback}: {_format_exception(error.raised)}"
            yield Finding("failed callback", words, (run.process_id,))
            return


def logged_errors(view: View) -> Iterator[Finding]:
    """Find exceptions that ranks logged before they finished, while other ranks needed them."""
    finished = [
        run
        for run in view.runs
        if run.status == 0 or (run.stage is Stage.LEAVING and not run.failed)
    ]
    logged = [(run, last) for run in finished if (last := _find_logged(view, run)) is not None]
    needed = view.state.differs or any(last.is_victims for _, last in logged)
    for run, last in logged:
        is_needed = needed or run is view.culprit or run.process_id in view.late
        if is_needed and not last.is_victims:
            who = view.format_ranks([run.process_id])
            words = f"{who} logged {_format_traceback(last)}, and finished"
            yield Finding(("logged", run.process_id), words, (run.process_id,))


def _find_logged(view: View, run: RankRun) -> Traceback | None:
    """Return the last traceback that a rank has printed; None if there is none."""
    printed = run.stderr or view.state.tails.get_tails(run.process_id)[1]
    found = find_tracebacks(printed.encode("utf-8", "replace") + b"\n")
    return next((each for each in reversed(found) if each.is_over and each.text), None)


def _format_traceback(traceback: Traceback) -> str:
    """Return a traceback's exception, with the user's line that raised it if known."""
    calls = (call for call in reversed(traceback.frames) if is_users(call[0]))
    file, frame = next(calls, ("", b""))
    number = frame.decode("utf-8", "replace").rpartition(", line ")[2].partition(",")[0]
    return shorten_line(traceback.text) + (f", at {format_path(file)}:{number}" if file else "")


def _describe_error(view: View, lost: ErrorReport) -> str:
    error = lost.error
    thread = error.callback or (f"thread {error.thread}" if error.thread else "a thread")
    did = "failed" if error.callback else "ended"
    ago = "before" if view.first is not None else "ago"
    when = f"{format_rough_duration(max(view.now - lost.at, 0.0))} {ago}"
    return f"{thread} {did} {when}: {_format_exception(error.raised)}"


def _format_exception(raised: Raised) -> str:
    return extract_headline(raised) + (f", at {raised.where}" if raised.where else "")

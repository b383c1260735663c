"""Words for the root cause of a failure, with what is known about it; pure."""

from __future__ import annotations

import signal

from mcjax_launch.features.explain import importing
from mcjax_launch.features.explain.hints import find_hints_safely
from mcjax_launch.features.explain.jax_messages.noise import without_noise
from mcjax_launch.features.explain.rules import apply_rules
from mcjax_launch.features.explain.snapshots import find_crash_frame
from mcjax_launch.features.explain.victims import ran_other_collective
from mcjax_launch.features.explain.view import Moment, View
from mcjax_launch.journal.ending import RankFailed
from mcjax_launch.journal.facts import Finding
from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.summary import explain_job_end, name_failed_ranks
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.journal.words import OF_LIMITS, describe_rank_failure, extract_headline
from mcjax_launch.ranks import format_count
from mcjax_launch.wire import source_lines
from mcjax_launch.wire.hook_messages import Failed, Raised
from mcjax_launch.wording import omit_middle

_TAIL_LINES = 15

_LONGEST = 1000
# Characters at the end of a rank's stderr that are its last words.
_LATEST = 2000
# JAX's exception that names the line of an operation which JAX has transformed.
_OPERATION = "JaxStackTraceBeforeTransformation"
_ELSEWHERE = (
    "this is a consequence: a rank of another launcher failed, ended or did not join; see the "
    "summary of that launcher"
)


def describe_imports(state: RunState) -> list[str]:
    """Describe the imports that ranks were still waiting for when the run was stopped."""
    if state.stop_at is None or not any(run.process.awaits for run in state.ranks.values()):
        return []
    return list(importing.describe_imports(state, state.stop_at))


def find_warnings(state: RunState) -> list[str]:
    """Return what may be wrong with a job in which ranks use JAX and none has failed."""
    view = View(state, state.activity.active_at)
    found = apply_rules(view, Moment.END)
    return [each.words for each in found if each.words not in state.told]


# --- the root cause ---


def find_root_cause(state: RunState, first: RankRun) -> Finding | None:
    """Return what explains the first failure of a run; None if that rank just failed."""
    is_victim = determine_verdict(first) is Verdict.VICTIM
    # A second process of a rank may fail in its own way before JAX ends both for it.
    if is_victim or ran_other_collective(first) or first.membership.second_process is not None:
        view = View(state, first.failed_at or 0.0, first=first)
        return next(apply_rules(view, Moment.DEATH), None)
    return None


def describe_root_cause(ending: RankFailed, state: RunState) -> tuple[list[str], tuple[int, int]]:
    """Return lines on the root cause, and the (start, stop) of those that quote its output."""
    run, failure = ending.culprit, ending.culprit.failure
    if ending.found is not None:
        lines = [ending.found.words, *filter(None, [ending.found.hint])]
        if not ending.found.ranks:
            lines += find_hints_safely(state, ending.first)
        return lines, (0, 0)
    lines = [f"{name_failed_ranks(ending, state)}: {describe_rank_failure(run)}"]
    elsewhere = state.has_others and determine_verdict(run) is Verdict.VICTIM
    if elsewhere:
        lines.append(_ELSEWHERE)
    if failure is not None:
        lines += [f"at {_format_place(failure.placed)}"] if failure.placed.where else []
        lines += _describe_causes(failure)
    else:
        lines += _format_crashed_line(run)
    start = len(lines)
    if failure is None or failure.exited:
        lines += quote_last_lines(run)
    else:
        lines += [f"  | {line}" for line in omit_middle(failure.traceback.rstrip().splitlines())]
    quote = (start, len(lines)) if _has_printed_failure(run) else (0, 0)
    lines += explain_job_end(state)
    killer = run.process.killer
    if killer and -(run.status or 0) not in (signal.SIGKILL, *OF_LIMITS):
        lines.append(f"meanwhile {killer}")
    lines += [] if elsewhere else find_hints_safely(state, run)
    return lines, quote


def describe_other_causes(state: RunState, ending: RankFailed, said: str) -> list[str]:
    """Return the words of all findings that may explain a failure besides the root cause."""
    first = ending.first
    view = View(state, first.failed_at or 0.0, first=first, culprit=ending.culprit, said=said)
    return [found.words for found in apply_rules(view, Moment.FAILURE)]


def _format_crashed_line(run: RankRun) -> list[str]:
    """Return a line "at ..." with the user's line that crashed; [] if that is unknown."""
    if run.status is None:
        return []
    frame = find_crash_frame(run)
    return [f"at {frame}"] if frame is not None else []


def _describe_causes(failure: Failed) -> list[str]:
    """Return lines on the exceptions that led to a failure, each with its line."""
    lines = []
    for cause in failure.causes:
        if cause.exception != _OPERATION:
            at = f", at {_format_place(cause)}" if cause.where else ""
            lines.append(
                f"{'inside' if cause.inside else 'caused by'}: {extract_headline(cause)}{at}"
            )
        elif cause.where not in (None, failure.where) and source_lines.is_users(str(cause.where)):
            lines.append(f"in the operation at {_format_place(cause)}")
    return lines


def _format_place(raised: Failed | Raised) -> str:
    return f"{raised.where}: {raised.line}" if raised.line else str(raised.where)


def _has_printed_failure(run: RankRun) -> bool:
    """Return whether the end of a rank's stderr shows why it failed."""
    failure = run.failure
    if failure is None or failure.exited:
        return True
    return failure.summary.partition("\n")[0] in run.stderr[-_LATEST:]


def quote_last_lines(run: RankRun) -> list[str]:
    """Return the last lines of a rank's stderr, quoted, without JAX's noise."""
    printed = run.stderr.splitlines()
    kept, hidden = without_noise(printed)
    if printed and not kept and run.failure is None:  # there is nothing better
        kept, hidden = printed[:1], hidden - 1
    lines = [f"  | {line.rstrip()}" for line in kept[-_TAIL_LINES:]]
    if hidden and lines:
        lines.append(f"  ({format_count(hidden, 'JAX log line')} hidden)")
    return ["the last lines of its stderr:", *lines] if lines else []

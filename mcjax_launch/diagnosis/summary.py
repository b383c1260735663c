"""The summary: the lines on stderr at the end of a run, and descriptions of exits; pure."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence

from mcjax_launch.diagnosis.headline import extract_headline, shorten_line
from mcjax_launch.diagnosis.root_cause import (
    Completed,
    Ending,
    JobStopped,
    NotStarted,
    RankFailed,
    determine_ending,
)
from mcjax_launch.diagnosis.verdict import determine_verdict
from mcjax_launch.diagnosis.view import Occasion, View
from mcjax_launch.ranks import format_all_ranks, format_count, format_ranks
from mcjax_launch.runs.rank_run import RankRun, Verdict
from mcjax_launch.runs.state import RunState
from mcjax_launch.wire import exit_status, source_lines
from mcjax_launch.wire.hook_messages import Failed, Raised
from mcjax_launch.wire.signals import FORWARDED, get_signal_name
from mcjax_launch.wire.source_lines import format_first_line
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable

#: The duration of a job is always printed if it took at least this many seconds.
LONG_S = 60
_TAIL_LINES = 15
# Of a traceback, whose message may be pages long.
_FIRST_LINES, _LAST_LINES = 20, 20
_LONGEST = 1000
# Characters at the end of a rank's stderr that are its last words.
_LATEST = 2000
_MOST_FATES = 4
# JAX's exception that names the line of an operation which JAX has transformed.
_OPERATION = "JaxStackTraceBeforeTransformation"
_ELSEWHERE = (
    "this is a consequence: a rank of another launcher failed, ended or did not join; see the "
    "summary of that launcher"
)
# What may have sent a SIGKILL; the key is RankProcess.killer.
_KILLED = {
    None: "kill -9 by some process, or the kernel's OOM killer",
    "": "kill -9 by some process; not by the kernel's OOM killer",
}

_FORWARDED = "which mcjax-launch got and forwarded; the program has no handler for it"

# Signals by which a process ends for a fault of its own, with what they mean.
_CRASHES: dict[int, str] = {
    signal.SIGABRT: "",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error; is /dev/shm full?",
    signal.SIGILL: "illegal instruction; was its code built for another processor?",
    signal.SIGFPE: "arithmetic error, such as a division by zero",
}
# A shell adds this to the number of the signal that has ended its program.
_SHELL_ADDS = 128
# Signals by which the kernel ends a process at a limit.
_OF_LIMITS = (signal.SIGXCPU, signal.SIGXFSZ)


class Summary(Value):
    """The summary of a run.

    Args:
        ending: cause of the run's end.
        lines: the lines to print; empty if all went well.
        final: True if the job must not be started again.
        quote: start and stop index of the `lines` that quote the culprit's output.

    """

    ending: Ending
    lines: tuple[str, ...] = ()
    final: bool = True
    quote: tuple[int, int] = (0, 0)

    @property
    def without_quote(self) -> tuple[str, ...]:
        """The lines without the quoted output, for a screen that has just shown it."""
        start, stop = self.quote
        return self.lines[:start] + self.lines[stop:]

    @property
    def status(self) -> int:
        """The run's exit status."""
        return self.ending.status


def summarize(state: RunState, *, final: bool = False, seconds: float | None = None) -> Summary:
    """Return the summary of a finished run.

    Args:
        state: state of the run.
        final: True if the job must not be started again, however the run ended.
        seconds: duration of the run, for a line about it; None for no such line.

    """
    ending, runs = determine_ending(state), list(state.ranks.values())
    lines: list[str] = []
    quote = (0, 0)
    match ending:
        case JobStopped(stop) if stop.is_brief:
            lines = [stop.message]
        case JobStopped(stop):
            details = stop.details or _describe_imports(state)
            lines = [stop.message, *_explain_job_end(state), *details]
            lines += _describe_other_ranks(runs, ())
        case RankFailed():
            lines, quote = _describe_root_cause(ending, state)
            said = "\n".join(lines)
            lines += [
                *_describe_other_ranks(runs, ending.alike),
                *_describe_other_causes(state, ending, said),
            ]
    if isinstance(ending, RankFailed) and state.unhooked != [ending.culprit.process_id]:
        lines += _describe_unhooked_ranks(state)
    if state.unkillable:
        lines.append("could not be killed: " + "; ".join(state.unkillable))
    if lines and not (isinstance(ending, JobStopped) and ending.stop.is_brief):
        lines += [f"the job ran for {format_duration(seconds)}"] if seconds is not None else []
        lines += [f"logs: {state.log_dir}"] if state.log_dir else []
    return Summary(
        ending,
        tuple(_make_printable(line) for line in lines),
        final or isinstance(ending, Completed),
        quote,
    )


def _describe_imports(state: RunState) -> list[str]:
    """Describe the imports that ranks were still waiting for when the run was stopped."""
    if state.stop_at is None or not any(run.process.awaits for run in state.ranks.values()):
        return []
    from mcjax_launch.diagnosis.findings.importing import under_way

    return [found.words for found in under_way(View(state, state.stop_at))]


def summarize_failed_start(message: str, status: int) -> Summary:
    """Return the summary of a run that could not be started.

    The summary is final unless the status is HOST_LOST: the host may be available again later.
    """
    final = status != exit_status.HOST_LOST
    return Summary(NotStarted(message, status), (message,), final)


def format_failure_report(state: RunState, run: RankRun, *, quoted: bool) -> Sequence[str]:
    """Return the lines to print immediately for a failure that the job outlives.

    Args:
        state: state of the run.
        run: facts on the failed rank.
        quoted: True to include the last output of the rank.

    """
    ending = RankFailed(run, run, (run,))
    lines, quote = _describe_root_cause(ending, state)
    summary = Summary(ending, tuple(map(_make_printable, lines)), quote=quote)
    return summary.lines if quoted else summary.without_quote


def describe_run_end(summary: Summary, state: RunState) -> str:
    """Return one line on the end of a run, even if all went well."""
    if summary.lines:
        return summary.lines[0]
    if not isinstance(summary.ending, Completed) or summary.status:
        return "ended"
    count = len(state.ranks)
    well = "the rank exited with 0" if count == 1 else f"{format_all_ranks(count)} exited with 0"
    return f"{well}, but they ran different programs" if state.differs else well


def find_warnings(state: RunState) -> list[str]:
    """Return warnings about a finished job in which no rank has failed; at most one as a rule."""
    if state.unhooked:
        return _describe_unhooked_ranks(state)
    if state.activity.jax_at is None and not state.initialize_calls:
        return []
    from mcjax_launch.diagnosis.rules import apply_rules  # as only ranks that use JAX need

    view = View(state, state.activity.active_at)
    lines = [found.words for found in apply_rules(view, Occasion.END)]
    return lines[:1]


def _describe_unhooked_ranks(state: RunState) -> list[str]:
    """Return a line on the ranks in which the hook should have run and did not, if any."""
    ranks = state.unhooked
    if not ranks:
        return []
    return [
        f"the hook did not run in {format_ranks(ranks)} ({len(ranks)} of {len(state.ranks)}): "
        "initialize() finds no coordinates there; does something replace PYTHONPATH?"
    ]


# --- the root cause ---


def _describe_root_cause(ending: RankFailed, state: RunState) -> tuple[list[str], tuple[int, int]]:
    """Return lines on the root cause, and the (start, stop) of those that quote its output."""
    from mcjax_launch.diagnosis.hints import find_hints_safely

    run, failure = ending.culprit, ending.culprit.failure
    name = f"rank {run.process_id}" + (f" on {run.host}" if state.hosts > 1 else "")
    if ending.found is not None:
        lines = [ending.found.words, *filter(None, [ending.found.hint])]
        if not ending.found.ranks:
            lines += find_hints_safely(state, ending.first)
        return lines, (0, 0)
    if 1 < len(ending.alike) == len(state.ranks):  # which one was the first is chance
        name = f"{len(ending.alike)} ranks failed"
    elif len(ending.alike) > 1:
        name = f"{len(ending.alike)} ranks failed, {name} first"
    else:
        name = f"{name} failed"
    lines = [f"{name}: {describe_rank_failure(run)}"]
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
        lines += [
            f"  | {line}" for line in omit_middle_lines(failure.traceback.rstrip().splitlines())
        ]
    quote = (start, len(lines)) if _has_printed_failure(run) else (0, 0)
    lines += _explain_job_end(state)
    killer = run.process.killer
    if killer and -(run.status or 0) not in (signal.SIGKILL, *_OF_LIMITS):
        lines.append(f"meanwhile {killer}")
    lines += [] if elsewhere else find_hints_safely(state, run)
    return lines, quote


def _describe_other_causes(state: RunState, ending: RankFailed, said: str) -> list[str]:
    """Return the words of all findings that may explain a failure besides the root cause."""
    from mcjax_launch.diagnosis.rules import apply_rules

    first = ending.first
    view = View(state, first.failed_at or 0.0, first=first, culprit=ending.culprit, said=said)
    return [found.words for found in apply_rules(view, Occasion.SUMMARY)]


def _explain_job_end(state: RunState) -> list[str]:
    """Return a line on why the job ended in spite of --on-rank-failure; [] if it did not."""
    why = state.ended_all
    return [f"--on-rank-failure: the job ended despite it: {why}"] if why else []


def _format_crashed_line(run: RankRun) -> list[str]:
    """Return a line "at ..." with the user's line that crashed; [] if that is unknown."""
    if run.status is None:
        return []
    from mcjax_launch.diagnosis.snapshots import find_crash_frame

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
    from mcjax_launch.jax_messages.line_classifier import without_noise

    printed = run.stderr.splitlines()
    kept, hidden = without_noise(printed)
    if printed and not kept and run.failure is None:  # there is nothing better
        kept, hidden = printed[:1], hidden - 1
    lines = [f"  | {line.rstrip()}" for line in kept[-_TAIL_LINES:]]
    if hidden and lines:
        lines.append(f"  ({format_count(hidden, 'JAX log line')} hidden)")
    return ["the last lines of its stderr:", *lines] if lines else []


# --- ranks, in words ---


def _describe_other_ranks(runs: Sequence[RankRun], described: Sequence[RankRun]) -> list[str]:
    """Return a line that counts how all ranks but the `described` ended; [] if there are none."""
    those = {run.process_id for run in described}
    counts = Counter(describe_rank_end(run) for run in runs if run.process_id not in those)
    total = counts.total()
    if not total:
        return []
    if total == 1:
        alone = "the other rank" if described else format_ranks(run.process_id for run in runs)
        return [f"{alone}: {next(iter(counts))}"]
    several = f"the {total} other ranks" if described else f"the {total} ranks"
    if len(counts) == 1:
        name = several if described else format_all_ranks(total)
        return [f"{name}: {next(iter(counts))}"]
    fates = counts.most_common()
    parts = [f"{count} {end}" for end, count in fates[:_MOST_FATES]]
    if rest := sum(count for _, count in fates[_MOST_FATES:]):
        parts.append(f"{rest} in other ways")
    return [f"{several}: {', '.join(parts)}"]


def describe_rank_end(run: RankRun) -> str:
    """Describe the end of a rank, or why that is unknown."""
    status, failure = run.status, run.failure
    if run.was_interrupted:
        return _describe_signal_end(signal.SIGINT, run.process.signals)
    if determine_verdict(run) is Verdict.VICTIM:
        if status == -signal.SIGABRT:
            return "aborted by JAX as a consequence"
        where = failure.where if failure is not None else None
        return f"failed as a consequence at {where}" if where else "failed as a consequence"
    if run.failed and failure is not None:
        signals = run.process.signals if run.after_signal else ()
        after = f" after {signal.Signals(signals[0]).name}" if signals else ""
        return f"failed{after}: {describe_rank_failure(run)}"
    if status is None:
        if run.process.lost:
            return f"lost with host {run.host}"
        return "fate unknown" if run.process.pid else "never started"
    if status >= 0:
        return f"exited with status {status}" if status else "exited with 0"
    if -status in run.process.signals:
        return _describe_signal_end(-status, run.process.signals)
    return describe_rank_failure(run)


def _describe_signal_end(signum: int, signals: Sequence[int]) -> str:
    """Describe the end of a rank by a signal from the launcher."""
    if signum != signal.SIGKILL:
        return f"ended by {signal.Signals(signum).name}"
    before = [signal.Signals(other).name for other in signals if other != signum]
    return f"killed (still running after {before[0]})" if before else "killed"


def describe_rank_failure(run: RankRun) -> str:
    """Describe the failure of a rank: its exception, exit or signal."""
    failure = run.failure
    if failure is None:
        assert run.status is not None
        from mcjax_launch.jax_messages.crashes import find_crash_words

        forwarded = -run.status in run.process.forwarded
        killer = _FORWARDED if forwarded else run.process.killer
        text = describe_exit_status(run.status, killer)
        words = shorten_line(find_crash_words(run.stderr, run.status))
        return f"{text}: {words}" if words else text
    return describe_failure(failure)


def describe_failure(failure: Failed) -> str:
    """Describe a program's failure: its exception, or its exit and the exception then handled."""
    if not failure.exited:
        return extract_headline(failure)
    handled = failure.handled
    if handled is not None and failure.test:
        count = failure.failed_tests
        more = f", the first of {count} failed tests" if count > 1 else ""
        return f"{extract_headline(handled)}, in {failure.test}{more}"
    while_ = f", while handling {extract_headline(handled)}" if handled is not None else ""
    said = format_first_line(failure.summary.strip().splitlines())
    return (shorten_line(said) or describe_exit_status(failure.status)) + while_


def describe_exit_status(status: int, killer: str | None = None) -> str:
    """Describe an exit status, or the signal that ended a process.

    Args:
        status: exit status of a process; if below 0, minus the number of a signal.
        killer: cause of the signal, in words; see `killer` of rank_run.RankProcess.

    """
    signum = -status if status < 0 else status - _SHELL_ADDS
    explanations: dict[int, str] = {
        signal.SIGKILL: killer or _KILLED[killer],
        **dict.fromkeys((*_OF_LIMITS, *FORWARDED), killer or ""),
        **_CRASHES,
    }
    explanation = explanations.get(signum)
    name = get_signal_name(signum) + (f" ({explanation})" if explanation else "")
    if status < 0:
        return f"killed by {name}"
    return f"exit status {status}" + (f", a shell's for {name}" if signum in _CRASHES else "")


def format_duration(seconds: float) -> str:
    """Format a duration for a person: `3.2 s`, `12 min 5 s` or `7 h 30 min`."""
    if seconds < 0.095:
        return "less than 0.1 s"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 9.5 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


# --- text of any length ---


def omit_middle_lines(lines: list[str]) -> list[str]:
    """Replace all but the first 20 and last 20 lines of a long text by a count of omitted lines."""
    omitted = len(lines) - _FIRST_LINES - _LAST_LINES
    if omitted <= 1:
        return lines
    return [*lines[:_FIRST_LINES], f"({omitted} lines omitted)", *lines[-_LAST_LINES:]]


def _make_printable(line: str) -> str:
    """Make a line safe to print: escape control characters, and cut after 1000 characters."""
    line = escape_unprintable(line)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."

"""Words for the ends of ranks, and for exit statuses; pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.options import features as declared
from mcjax_launch.wire.exit_status import FORWARDED, get_signal_name
from mcjax_launch.wire.hook_messages import Failed, Raised
from mcjax_launch.wire.source_lines import find_quoted_exception, format_first_line

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
#: Signals by which the kernel ends a process at a limit.
OF_LIMITS = (signal.SIGXCPU, signal.SIGXFSZ)


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
        forwarded = -run.status in run.process.forwarded
        killer = _FORWARDED if forwarded else run.process.killer
        text = describe_exit_status(run.status, killer)
        crashes = declared.load("jax_messages.crashes")
        said = crashes.find_crash_words(run.stderr, run.status) if crashes is not None else ""
        words = shorten_line(said)
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
        **dict.fromkeys((*OF_LIMITS, *FORWARDED), killer or ""),
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


# --- headlines ---

_LONGEST_HEADLINE = 400
_IN_A_CALLBACK = " (in a callback)"
# Ends a line that says only how many errors the next lines describe, as pydantic's.
_COUNTS_ERRORS = r"(?i)\b(?:\d+|multiple|several|some)(?: \w+)? errors?(?: (?:for|in) \S+)?$"


def extract_headline(failure: Failed | Raised) -> str:
    """Return the line of an exception's text that says what happened, with the exception's name.

    Usually that line begins with the exception's name; a SyntaxError's is the last line. If the
    text quotes another exception with its stack, return the quoted exception's line.
    """
    name, lines = failure.exception, failure.summary.splitlines()
    quoted = find_quoted_exception(failure.summary)
    first = (at for at, line in enumerate(lines) if name in line.partition(":")[0])
    lines = lines[next(first, len(lines)) :]
    line = format_first_line(lines) or name
    if re.search(_COUNTS_ERRORS, line):
        line = ": ".join([line, *_select_first_error(lines[1:])])
    if quoted is not None:
        line = quoted.line + (_IN_A_CALLBACK if "callback" in line else "")
    return shorten_line(line)


def _select_first_error(lines: list[str]) -> list[str]:
    """Return the first line with words, and the next if that is indented: the first error."""
    said = [line for line in lines if line.strip()][:2]
    more = said[1:] if said[1:] and said[1].startswith((" ", "\t")) else []
    return [line.strip() for line in [*said[:1], *more]]


def shorten_line(line: str) -> str:
    """Cut a line after 400 characters and mark the cut with " ..."."""
    return line if len(line) <= _LONGEST_HEADLINE else line[:_LONGEST_HEADLINE] + " ..."

"""From what happened to why: the first cause, in words, and the exit status; pure."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcjax_launch.history import History, RankRun, Stop

# What a rank says that was taken down by another's death. facts: JAX's own words.
_VICTIM_MARKS = (
    "Terminating process because the JAX distributed service detected fatal errors",
    "another task died",
    "Shutdown barrier has failed",
    "stopped sending heartbeats",
)
# And in the exceptions of collectives that have lost a peer.
_JAX_EXCEPTIONS = ("JaxRuntimeError", "XlaRuntimeError")
_VICTIM_EXCEPTION_MARKS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Socket closed",
    "Connection refused",
    *_VICTIM_MARKS,
)
_TAIL_LINES = 15
# Of a traceback, whose message may be pages long.
_HEAD_LINES, _END_LINES = 20, 20
_LONGEST = 1000
_MOST_FATES = 4


@dataclass(frozen=True)
class Verdict:
    """The exit status, and the report (empty when all went well)."""

    status: int
    report: tuple[str, ...] = ()
    final: bool = True  # not to be started again


def is_victim(run: RankRun) -> bool:
    """Whether a rank bears the marks of another's death."""
    if run.failure is not None:
        summary = run.failure.get("summary", "")
        of_jax = run.failure.get("exception") in _JAX_EXCEPTIONS or "Gloo" in summary
        return of_jax and any(mark in summary for mark in _VICTIM_EXCEPTION_MARKS)
    return run.status == -signal.SIGABRT and any(m in run.stderr for m in _VICTIM_MARKS)


def first_cause(ranks: Sequence[RankRun]) -> RankRun | None:
    """The rank that failed first and is not known to be a victim of another."""
    failed = sorted((rank for rank in ranks if rank.failed), key=lambda rank: rank.order)
    return next((rank for rank in failed if not is_victim(rank)), failed[0] if failed else None)


def judge(history: History) -> Verdict:
    """What to say at the end, and with which status to exit."""
    ranks = list(history.ranks.values())
    cause = first_cause(ranks)
    stop = history.stop
    if stop is not None and (cause is None or history.stop_order < cause.order):
        lines = [stop.words, *stop.details, *_others(ranks, None)]
        status, final = stop.status, stop.final
    elif cause is not None:
        lines = [*_describe(cause, history), *_others(ranks, cause)]
        status, final = cause.exit_status, stop is not None and stop.final
    else:
        assert all(rank.status is not None for rank in ranks), "a rank's end was not told"
        lines, final, status = [], True, next((r.exit_status for r in ranks if r.status), 0)
    if history.unkillable:
        lines.append("could not be killed: " + "; ".join(history.unkillable))
    if lines and history.log_dir:
        lines.append(f"logs: {history.log_dir}")
    return Verdict(status, tuple(_printable(line) for line in lines), final)


def _printable(line: str) -> str:
    """A line that can be quoted: neither endless nor able to clear the screen."""
    line = "".join(char if char.isprintable() else " " for char in line)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."


def status_in_words(status: int) -> str:
    """An exit status (or, below 0, a signal) for a person."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hints: dict[int, str] = {
        signal.SIGKILL: " (the kernel's out-of-memory killer, or somebody's kill -9)",
        signal.SIGSEGV: " (segmentation fault)",
        signal.SIGBUS: " (bus error; is /dev/shm full?)",
    }
    return f"killed by {name}{hints.get(-status, '')}"


def _describe(cause: RankRun, history: History) -> list[str]:
    where = f"rank {cause.process_id}" + (f" on {cause.host}" if history.hosts > 1 else "")
    failure = cause.failure
    if failure is None:
        assert cause.status is not None
        words = f"{where} failed: {status_in_words(cause.status)}"
        return [words, *_tail(cause), *advice(cause)]
    if failure.get("exit"):
        return [f"{where} failed: it exited with status {failure['status']}", *_tail(cause)]
    lines = [f"{where} failed: {headline(failure)}"]
    if failure.get("where"):
        lines.append(f"at {failure['where']}: {failure.get('line') or ''}".rstrip(": "))
    lines += [f"  | {line}" for line in shortened(str(failure["traceback"]).rstrip().splitlines())]
    return [*lines, *advice(cause)]


def headline(failure: Mapping[str, Any]) -> str:
    """The line of an exception's text that begins with its name; a SyntaxError's is the last."""
    name, lines = str(failure["exception"]), str(failure["summary"]).splitlines()
    return next((line for line in lines if name in line.partition(":")[0]), name)


def _tail(cause: RankRun) -> list[str]:
    """The last of its stderr, quoted."""
    lines = [f"  | {line.rstrip()}" for line in cause.stderr.splitlines()[-_TAIL_LINES:]]
    return ["the last lines of its stderr:", *lines] if lines else []


def shortened(lines: list[str]) -> list[str]:
    """A text of many lines without its middle."""
    left_out = len(lines) - _HEAD_LINES - _END_LINES
    if left_out <= 1:
        return lines
    return [*lines[:_HEAD_LINES], f"({left_out} lines left out)", *lines[-_END_LINES:]]


def advice(cause: RankRun) -> list[str]:
    """A line on what to do, for mistakes that are known."""
    failure = cause.failure or {}
    unhooked = ("Number of processes must be defined", "coordinator_address should be defined")
    if cause.joining_at is None and any(words in cause.stderr for words in unhooked):
        return [
            "the hook did not run in this Python: python -I, -E or -S, a PYTHONPATH that replaces "
            "ours, or --no-hook keep it out"
        ]
    if failure.get("module") in ("jax", "jaxlib"):
        return [
            f"the ranks' Python, {failure['python']}, has no {failure['module']}: "
            "install it there or choose another with --python"
        ]
    return []


def _others(ranks: Sequence[RankRun], cause: RankRun | None) -> list[str]:
    """What became of the other ranks, counted, in one line."""
    counts: dict[str, int] = {}
    for rank in ranks:
        if rank is not cause:
            fate = _fate(rank)
            counts[fate] = counts.get(fate, 0) + 1
    if not counts:
        return []
    total = sum(counts.values())
    other = "other " if cause is not None else ""
    fates = sorted(counts.items(), key=lambda fate: -fate[1])
    parts = [f"{count} {fate}" for fate, count in fates[:_MOST_FATES]]
    if rest := sum(count for _, count in fates[_MOST_FATES:]):
        parts.append(f"{rest} otherwise")
    if total == 1:
        return [f"the {other}rank: {next(iter(counts))}"]
    return [f"the {total} {other}ranks: {', '.join(parts)}"]


def _fate(rank: RankRun) -> str:
    if rank.status is None:
        return f"lost with host {rank.host}" if rank.lost else "of unknown fate"
    if rank.status == 0:
        return "ended with 0"
    if rank.status == -signal.SIGKILL and signal.SIGKILL in rank.sent:
        return "killed after the grace"
    if -rank.status in rank.sent:
        return f"ended by {signal.Signals(-rank.status).name}"
    if is_victim(rank):
        return "aborted by JAX as a consequence"
    return f"{'ended with' if rank.status > 0 else 'died:'} {status_in_words(rank.status)}"


def interrupted(signum: int) -> Stop:
    """The end of a job by a signal to the launcher."""
    return Stop(f"stopped by {signal.Signals(signum).name}", 128 + signum)

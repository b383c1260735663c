"""From what happened to why: the first cause, in words, and the exit status; pure."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mcjax_launch import errors

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


@dataclass
class RankEnd:
    """How a rank ended, as far as is known.

    Attributes:
        order: its place in the order in which ends and failures became known.
        status: exit status; below 0: minus a signal. None while its process lives.
        sent: signals it was sent to end it, before it ended.
        lost: with its host, so that nothing more is known of it.
        joining: it has called initialize();
        joined: and come through it.
        failure: what the hook said of an exception or exit, if it did.
        stderr: the last of what it wrote there.

    """

    process_id: int
    host: str
    order: int = 0
    status: int | None = None
    sent: Sequence[int] = ()
    failure: Mapping[str, Any] | None = None
    lost: bool = False
    joining: bool = False
    joined: bool = False
    stderr: str = ""

    @property
    def hidden_failure(self) -> bool:
        """Whether its program failed although JAX held up its end, so that its status is lost."""
        return self.failure is not None and bool(self.failure["joined"])

    @property
    def failed(self) -> bool:
        """Whether it failed by itself: not by a signal that it was sent."""
        if self.hidden_failure:
            return True
        return self.status is not None and self.status != 0 and -self.status not in self.sent

    @property
    def victim(self) -> bool:
        """Whether it bears the marks of another's death."""
        if self.failure is not None:
            summary = self.failure.get("summary", "")
            of_jax = self.failure.get("exception") in _JAX_EXCEPTIONS or "Gloo" in summary
            return of_jax and any(mark in summary for mark in _VICTIM_EXCEPTION_MARKS)
        return self.status == -signal.SIGABRT and any(m in self.stderr for m in _VICTIM_MARKS)

    @property
    def exit_status(self) -> int:
        """What a shell would say of it; the program's own where JAX's exit hid that."""
        if self.failure is not None and self.hidden_failure:
            return int(self.failure["status"])
        assert self.status is not None
        return self.status if self.status >= 0 else 128 - self.status


@dataclass(frozen=True)
class Stop:
    """A reason to end the job other than a rank's failure.

    Args:
        words: what happened, in words.
        status: the exit status it leads to.
        details: further lines.
        final: it is no use, or nobody's wish, to start the job again.

    """

    words: str
    status: int
    details: tuple[str, ...] = ()
    final: bool = True


@dataclass
class History:
    """All that happened in a run, in the order in which it became known."""

    ranks: dict[int, RankEnd] = field(default_factory=dict)
    stop: Stop | None = None
    stop_order: int = 0
    hosts: int = 1
    unkillable: list[str] = field(default_factory=list)
    log_dir: str | None = None

    _events: int = 0

    def exited(self, rank: int, body: Mapping[str, Any]) -> bool:
        """A rank's process is gone; whether that is no good end."""
        end = self.ranks[rank]
        end.status, end.sent = body["status"], body["sent"]
        end.order = end.order or self._next()
        return end.status != 0

    def hooked(self, rank: int, body: Mapping[str, Any]) -> bool:
        """A rank's hook has said something; whether it is that its program has failed."""
        end = self.ranks[rank]
        end.joining = end.joining or "joining" in body
        end.joined = end.joined or "joined" in body
        failed = body.get("failed")
        if failed is None or end.hidden_failure:
            return False
        if failed["joined"]:
            end.failure = failed
            end.order = self._next()
            return True
        if body["main"]:  # words for a status that is yet to come
            end.failure = failed
        return False

    def stopped(self, stop: Stop) -> None:
        """There is a reason to end the job; the first one counts."""
        if self.stop is None:
            self.stop = stop
            self.stop_order = self._next()

    def _next(self) -> int:
        self._events += 1
        return self._events


@dataclass(frozen=True)
class Verdict:
    """The exit status, and the report (empty when all went well)."""

    status: int
    report: tuple[str, ...] = ()
    final: bool = True  # not to be started again


def first_cause(ranks: Sequence[RankEnd]) -> RankEnd | None:
    """The rank that failed first and is not known to be a victim of another."""
    failed = sorted((rank for rank in ranks if rank.failed), key=lambda rank: rank.order)
    return next((rank for rank in failed if not rank.victim), failed[0] if failed else None)


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


def _describe(cause: RankEnd, history: History) -> list[str]:
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


def _tail(cause: RankEnd) -> list[str]:
    """The last of its stderr, quoted."""
    lines = [f"  | {line.rstrip()}" for line in cause.stderr.splitlines()[-_TAIL_LINES:]]
    return ["the last lines of its stderr:", *lines] if lines else []


def shortened(lines: list[str]) -> list[str]:
    """A text of many lines without its middle."""
    left_out = len(lines) - _HEAD_LINES - _END_LINES
    if left_out <= 1:
        return lines
    return [*lines[:_HEAD_LINES], f"({left_out} lines left out)", *lines[-_END_LINES:]]


def advice(cause: RankEnd) -> list[str]:
    """A line on what to do, for mistakes that are known."""
    failure = cause.failure or {}
    unhooked = ("Number of processes must be defined", "coordinator_address should be defined")
    if not cause.joining and any(words in cause.stderr for words in unhooked):
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


def _others(ranks: Sequence[RankEnd], cause: RankEnd | None) -> list[str]:
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


def _fate(rank: RankEnd) -> str:
    if rank.status is None:
        return f"lost with host {rank.host}" if rank.lost else "of unknown fate"
    if rank.status == 0:
        return "ended with 0"
    if rank.status == -signal.SIGKILL and signal.SIGKILL in rank.sent:
        return "killed after the grace"
    if -rank.status in rank.sent:
        return f"ended by {signal.Signals(-rank.status).name}"
    if rank.victim:
        return "aborted by JAX as a consequence"
    return f"{'ended with' if rank.status > 0 else 'died:'} {status_in_words(rank.status)}"


def timed_out(option: str, seconds: float, details: Sequence[str] = ()) -> Stop:
    """The end of a job that took longer than the user allows."""
    return Stop(f"{option}: not done after {seconds:g} s", errors.TIMED_OUT, tuple(details))


def not_joined(seconds: float, missing: Sequence[RankEnd]) -> Stop:
    """The end of a job some of whose ranks never got through `initialize()`."""
    absent = [end for end in missing if not end.joining]
    waiting = [end for end in missing if end.joining]
    details = [
        f"{words}: {_names(ends)}"
        for words, ends in (("never called initialize()", absent), ("waiting in it", waiting))
        if ends
    ]
    return replace(timed_out("--start-timeout", seconds, details), final=False)


def _names(ends: Sequence[RankEnd]) -> str:
    return ", ".join(f"rank {end.process_id} on {end.host}" for end in ends)


def interrupted(signum: int) -> Stop:
    """The end of a job by a signal to the launcher."""
    return Stop(f"stopped by {signal.Signals(signum).name}", 128 + signum)

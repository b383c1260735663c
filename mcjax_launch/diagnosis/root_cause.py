"""From what happened to why: the first cause, in words, and the exit status; pure."""

import errno
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mcjax_launch.diagnosis.victim import is_victim
from mcjax_launch.protocol import exit_status
from mcjax_launch.protocol.hook_messages import Failed
from mcjax_launch.run.state import History, RankRun, Stop

_TAIL_LINES = 15
# Of a traceback, whose message may be pages long.
_HEAD_LINES, _END_LINES = 20, 20
_LONGEST = 1000
_HEADLINE = 400
_MOST_FATES = 4
# What makes two failures one and the same.
_SAME_FAILURE = ("exception", "where", "exited", "status")
_NO_KILLER = {
    None: "by the kernel's out-of-memory killer, or somebody's kill -9",
    "": "somebody's kill -9: the kernel's out-of-memory killer did nothing",
}


@dataclass(frozen=True)
class Verdict:
    """The exit status, and the report (empty when all went well)."""

    status: int
    report: tuple[str, ...] = ()
    final: bool = True  # not to be started again


def first_cause(ranks: Iterable[RankRun]) -> RankRun | None:
    """The rank that failed first and is no victim: neither of another nor of our signals."""
    failed = _failed(ranks)
    culprits = (rank for rank in failed if not rank.told_to_end and not is_victim(rank))
    return next(culprits, failed[0] if failed else None)


def _failed(ranks: Iterable[RankRun]) -> list[RankRun]:
    return sorted((rank for rank in ranks if rank.failed), key=lambda rank: rank.order)


@dataclass(frozen=True)
class Cause:
    """Why a run failed.

    Args:
        run: of the rank that failed first, or is to blame.
        like: those that failed as it did, itself included.
        deed: what it did to the others, in words that follow its name; empty: it failed.

    """

    run: RankRun
    like: tuple[RankRun, ...]
    deed: str = ""


def find_cause(history: History) -> Cause | None:
    """The rank that is to blame for the others' failures."""
    failed = _failed(history.ranks.values())
    first = first_cause(failed)
    if first is None:
        return None
    from mcjax_launch.diagnosis import blame  # as all that only a failure needs

    # A second process of a rank may fail in its own way before JAX ends them for it.
    others_deed = is_victim(first) or first.beside is not None
    if others_deed and (found := blame.blamed(history, failed)) is not None:
        return Cause(found[0], (found[0],), found[1])
    # Some may be killed while they fail for the same reason.
    told = [run for run in history.ranks.values() if run.failed or run.failure is not None]
    like = (run for run in told if _alike(run, first) and is_victim(run) == is_victim(first))
    return Cause(first, tuple(like))


def _alike(run: RankRun, other: RankRun) -> bool:
    """Whether two ranks failed in one way."""
    if run.failure is None or other.failure is None:
        return run.failure is other.failure and run.status == other.status
    return all(getattr(run.failure, key) == getattr(other.failure, key) for key in _SAME_FAILURE)


def ended_by(history: History) -> Cause | Stop | None:
    """What ended the run: a rank, another reason, or nothing but the good end of all."""
    first, stop = first_cause(history.ranks.values()), history.stop
    if stop is None or first is None:
        return stop or find_cause(history)
    # What a lost host does to others may be told before it is known to be lost.
    lost = stop.status == exit_status.HOST_LOST and is_victim(first)
    return stop if lost or history.stop_order < first.order else find_cause(history)


def judge(history: History) -> Verdict:
    """What to say at the end, and with which status to exit."""
    ranks = list(history.ranks.values())
    first, cause, stop = first_cause(ranks), ended_by(history), history.stop
    if isinstance(cause, Stop):
        lines = [cause.words, *cause.details, *_others(ranks, ())]
        status, final = cause.status, cause.final
    elif first is not None and cause is not None:
        lines = [*_describe(cause, history), *_others(ranks, cause.like)]
        status, final = first.exit_status, stop is not None and stop.final
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


def status_in_words(status: int, killer: str | None = None) -> str:
    """An exit status (or, below 0, a signal) for a person.

    Args:
        killer: see RankRun.

    """
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hints: dict[int, str] = {
        signal.SIGKILL: killer or _NO_KILLER[killer],
        signal.SIGSEGV: "segmentation fault",
        signal.SIGBUS: "bus error; is /dev/shm full?",
    }
    hint = hints.get(-status)
    return f"killed by {name} ({hint})" if hint else f"killed by {name}"


def _describe(cause: Cause, history: History) -> list[str]:
    from mcjax_launch.diagnosis.hints import advice

    run, failure = cause.run, cause.run.failure
    name = f"rank {run.process_id}" + (f" on {run.host}" if history.hosts > 1 else "")
    if cause.deed:
        return [f"{name} {cause.deed}"]
    if len(cause.like) > 1:
        name = f"{len(cause.like)} ranks failed, {name} first"
    else:
        name = f"{name} failed"
    if failure is None:
        assert run.status is not None
        lines = [f"{name}: {status_in_words(run.status, run.killer)}", *_tail(run)]
    elif failure.exited:
        lines = [
            f"{name}: it exited with status {failure.status}",
            *_place(failure),
            *_tail(run),
        ]
    else:
        lines = [f"{name}: {headline(failure)}", *_place(failure)]
        text = failure.traceback.rstrip().splitlines()
        lines += [f"  | {line}" for line in shortened(text)]
    if run.killer and run.status != -signal.SIGKILL:
        lines.append(f"meanwhile {run.killer}")
    if history.diverged:
        lines += ["the ranks had run different programs:", *history.programs.words()]
    return [*lines, *advice(run, diverged=history.diverged)]


def _place(failure: Failed) -> list[str]:
    """The user's own line that failed."""
    if not failure.where:
        return []
    return [f"at {failure.where}: {failure.line or ''}".rstrip(": ")]


def headline(failure: Failed) -> str:
    """The line of an exception's text that begins with its name; a SyntaxError's is the last."""
    name, lines = failure.exception, failure.summary.splitlines()
    found = next((line for line in lines if name in line.partition(":")[0]), name)
    return found if len(found) <= _HEADLINE else found[:_HEADLINE] + " ..."


def _tail(cause: RankRun) -> list[str]:
    """The last of its stderr, quoted, without what is no news of it."""
    from mcjax_launch.jax_messages.noise import without_noise

    kept, left_out = without_noise(cause.stderr.splitlines())
    kept = kept or cause.stderr.splitlines()[:1]
    lines = [f"  | {line.rstrip()}" for line in kept[-_TAIL_LINES:]]
    if left_out and lines:
        lines.append(f"  ({left_out} lines of JAX's own left out)")
    return ["the last lines of its stderr:", *lines] if lines else []


def shortened(lines: list[str]) -> list[str]:
    """A text of many lines without its middle."""
    left_out = len(lines) - _HEAD_LINES - _END_LINES
    if left_out <= 1:
        return lines
    return [*lines[:_HEAD_LINES], f"({left_out} lines left out)", *lines[-_END_LINES:]]


def _others(ranks: Sequence[RankRun], told: Sequence[RankRun]) -> list[str]:
    """What became of the other ranks, counted, in one line."""
    counts: dict[str, int] = {}
    for rank in ranks:
        if rank not in told:
            words = fate(rank)
            counts[words] = counts.get(words, 0) + 1
    if not counts:
        return []
    total = sum(counts.values())
    other = "other " if told else ""
    fates = sorted(counts.items(), key=lambda counted: -counted[1])
    parts = [f"{count} {words}" for words, count in fates[:_MOST_FATES]]
    if rest := sum(count for _, count in fates[_MOST_FATES:]):
        parts.append(f"{rest} otherwise")
    if total == 1:
        return [f"the {other}rank: {next(iter(counts))}"]
    return [f"the {total} {other}ranks: {', '.join(parts)}"]


def fate(rank: RankRun) -> str:
    """What became of a rank, in words."""
    if rank.failed and is_victim(rank):
        if rank.status == -signal.SIGABRT:
            return "aborted by JAX as a consequence"
        where = rank.failure.where if rank.failure is not None else None
        return f"failed as a consequence at {where}" if where else "failed as a consequence"
    if rank.failed and rank.failure is not None:
        told = [signal.Signals(one).name for one in rank.sent] if rank.told_to_end else []
        return f"failed{f' after {told[0]}' if told else ''}: {reason(rank)}"
    if rank.status is None:
        return f"lost with host {rank.host}" if rank.lost else "of unknown fate"
    if rank.status == 0:
        return "ended with 0"
    if -rank.status in rank.sent:
        return _ended_by(-rank.status, rank.sent)
    return f"{'ended with' if rank.status > 0 else 'died:'} {status_in_words(rank.status)}"


def _ended_by(signum: int, sent: Sequence[int]) -> str:
    """The end of a rank by a signal that it was sent."""
    name = signal.Signals(signum).name
    if signum != signal.SIGKILL:
        return f"ended by {name}"
    before = [signal.Signals(one).name for one in sent if one != signum]
    return f"killed as {before[0]} was not enough" if before else "killed"


def reason(rank: RankRun) -> str:
    """Why a rank failed, in words: its exception, exit or signal."""
    if rank.failure is None:
        assert rank.status is not None
        return status_in_words(rank.status, rank.killer)
    if rank.failure.exited:
        return f"exited with status {rank.failure.status}"
    return headline(rank.failure)


def interrupted(signum: int) -> Stop:
    """The end of a job by a signal to the launcher."""
    return Stop(f"stopped by {signal.Signals(signum).name}", 128 + signum)


def reader_gone(error: OSError | None) -> Stop:
    """The end of a job whose output nobody takes, or that cannot be written."""
    words = "nobody reads the output any more"
    if error is not None and error.errno not in (errno.EPIPE, errno.EIO):
        words = f"stdout cannot be written: {error.strerror}"
    return Stop(words, exit_status.READER_GONE)


def warnings(history: History) -> list[str]:
    """What is worth saying of a job that has ended well."""
    ranks = history.ranks.values()
    if history.diverged:
        return ["the ranks ran different programs:", *history.programs.words()]
    apart = all(run.imported_jax and run.joining_at is None for run in ranks)
    if apart and history.num_processes > 1:
        return [
            f"no rank called jax.distributed.initialize(): these were {history.num_processes} "
            "jobs of one process each"
        ]
    return []

"""The summary: the lines on stderr at the end of a run; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mcjax_launch.journal.ending import (
    Completed,
    Ending,
    JobStopped,
    NotStarted,
    RankFailed,
    determine_ending,
)
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.words import describe_rank_end, describe_rank_failure, format_duration
from mcjax_launch.options import features as declared
from mcjax_launch.ranks import format_all_ranks, format_ranks
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable

#: The duration of a job is always printed if it took at least this many seconds.
LONG_S = 60
_LONGEST = 1000
_MOST_FATES = 4


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
            causes = declared.load("causes")
            details = stop.details or (causes.describe_imports(state) if causes else ())
            picture = [state.picture] if stop.needs_stacks and state.picture else []
            lines = [stop.message, *picture, *explain_job_end(state), *details]
            lines += _describe_other_ranks(runs, ())
        case RankFailed():
            lines, quote = _describe_root_cause(ending, state)
            said = "\n".join(lines)
            lines += _describe_other_ranks(runs, ending.alike)
            if (causes := declared.load("causes")) is not None:
                lines += causes.describe_other_causes(state, ending, said)
    if isinstance(ending, RankFailed) and state.unhooked != [ending.culprit.process_id]:
        lines += describe_unhooked_ranks(state)
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


def describe_unhooked_ranks(state: RunState) -> list[str]:
    """Return a line on the ranks in which the hook should have run and did not, if any."""
    ranks = state.unhooked
    if not ranks:
        return []
    return [
        f"the hook did not run in {format_ranks(ranks)} ({len(ranks)} of {len(state.ranks)}): "
        "initialize() finds no coordinates there; does something replace PYTHONPATH?"
    ]


def find_warnings(state: RunState) -> list[str]:
    """Return warnings about a finished job in which no rank has failed; at most one as a rule."""
    if state.unhooked:
        return describe_unhooked_ranks(state)
    if state.activity.jax_at is None and not state.initialize_calls:
        return []
    causes = declared.load("causes")  # as only ranks that use JAX need
    return [] if causes is None else list(causes.find_warnings(state)[:1])


# --- the failure of a rank, and the other ranks ---


def _describe_root_cause(ending: RankFailed, state: RunState) -> tuple[list[str], tuple[int, int]]:
    """Return lines on the root cause, and the (start, stop) of those that quote its output."""
    if (causes := declared.load("causes")) is not None:
        lines, quote = causes.describe_root_cause(ending, state)
        return lines, quote
    return [f"{name_failed_ranks(ending, state)}: {describe_rank_failure(ending.culprit)}"], (0, 0)


def name_failed_ranks(ending: RankFailed, state: RunState) -> str:
    """Return words such as "rank 1 on b failed", or "3 ranks failed, rank 1 first"."""
    run, count = ending.culprit, len(ending.alike)
    name = f"rank {run.process_id}" + (f" on {run.host}" if state.hosts > 1 else "")
    if 1 < count == len(state.ranks):  # which one was the first is chance
        return f"{count} ranks failed"
    return f"{count} ranks failed, {name} first" if count > 1 else f"{name} failed"


def explain_job_end(state: RunState) -> list[str]:
    """Return a line on why the job ended in spite of --on-rank-failure; [] if it did not."""
    why = state.ended_all
    return [f"--on-rank-failure: the job ended despite it: {why}"] if why else []


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


def _make_printable(line: str) -> str:
    """Make a line safe to print: escape control characters, and cut after 1000 characters."""
    line = escape_unprintable(line)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."

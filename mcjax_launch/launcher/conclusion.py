"""Conclusion of an attempt: what is printed when no process of the job is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcjax_launch.journal.ending import JobStopped, RankFailed
from mcjax_launch.journal.summary import LONG_S, Summary, find_warnings, summarize
from mcjax_launch.journal.words import format_duration

if TYPE_CHECKING:
    from mcjax_launch.launcher.part import JobLauncher


def conclude(launcher: JobLauncher, *, lost_output: bool) -> Summary:
    """Print the last findings and the summary of an attempt; return the summary.

    Args:
        launcher: the launcher.
        lost_output: True if output of ranks was lost, because the reader stopped reading.

    """
    console, state = launcher.console, launcher.state
    console.finish_ranks(mentions=state.stop is None or not state.stop.saved)
    seconds = time.monotonic() - state.began_at
    summary = summarize(state, final=launcher.policy.final, seconds=seconds)
    if lost_output:
        console.say("output lost: the reader stopped reading")
    for line in state.failed_hints:
        console.show_detail(line)
    if not summary.lines:
        _report_success(launcher, seconds)
    elif lines := _select_unprinted_lines(launcher, summary):
        console.show_summary(lines, alarm=not launcher.policy.interrupts)
    for part in launcher.parts:
        part.on_summary(summary)
    return summary


def _report_success(launcher: JobLauncher, seconds: float) -> None:
    console, state = launcher.console, launcher.state
    say = console.note if seconds >= LONG_S else console.show_detail
    say(f"the job ran for {format_duration(seconds)}")
    if lines := find_warnings(state):
        console.say("\n".join(lines))
    if state.log_dir and not launcher.job.record:
        console.note(f"logs: {state.log_dir}")


def _select_unprinted_lines(launcher: JobLauncher, summary: Summary) -> Sequence[str]:
    """Return the summary's lines without text that has just been printed."""
    ending, state = summary.ending, launcher.state
    if isinstance(ending, JobStopped) and ending.stop.saved:
        return summary.lines[1:]
    alike = ending.alike if isinstance(ending, RankFailed) else ()
    is_shown = (
        launcher.job.on_github  # its annotation quotes the text
        or any(launcher.console.is_on_screen(run.process_id) for run in alike)
        or (state.survives and not state.ended_all)
    )
    return summary.without_quote if is_shown else summary.lines

"""One verdict on each rank, and a screen that hides what the summary calls a consequence."""

import math
import signal
from itertools import chain

import pytest
from histories import GLOO, HISTORIES, REPORTS, STREAMS, end
from records import rank_run

from mcjax_launch.console.pieces import Piece, Stream, make_lines
from mcjax_launch.features.explain.noise_filter import NoiseFilter
from mcjax_launch.journal.rank_run import RankRun, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.summary import summarize
from mcjax_launch.journal.verdict import determine_verdict
from mcjax_launch.journal.words import describe_rank_end
from mcjax_launch.wire import frames
from mcjax_launch.wire.hook_messages import Failed

KILL, ABRT, SEGV = signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV


def printed(failure: Failed, rank: int) -> str:
    """What Python prints of a failure."""
    if failure.exited:
        return f"{failure.summary}\n"
    first = "Traceback (most recent call last):"
    frame = [f'  File "train.py", line {rank + 1}, in step', "    boom()"]
    lines = [first, *frame, failure.summary]
    if failure.exception.endswith("Group"):
        lines = [f"  + Exception Group {first}", *_indented("  | ", [*frame, failure.summary])]
        for number, cause in enumerate(failure.causes, 1):
            lines.append(f"  +-+---------------- {number} ----------------")
            lines += _indented("    | ", [first, *frame, cause.summary])
        lines.append(f"    +{'-' * 36}")
    return "\n".join([*lines, ""])


def _indented(by: str, lines: list[str]) -> list[str]:
    return [f"{by}{line}" for line in lines]


class Screen:
    """Lets runs end, as the launcher does, and keeps what is shown of each rank.

    Args:
        is_late: what a rank prints of its failure comes after the hook's word of that.

    """

    def __init__(self, runs: list[RankRun], is_late: bool) -> None:
        self._noise = NoiseFilter()
        self._shown: list[Piece] = []
        self._streams = {run.process_id: Stream(run.process_id, frames.STDERR) for run in runs}
        for run in sorted(runs, key=lambda run: run.order):
            self._print(run.process_id, f"before\n{run.stderr.rstrip()}\n")
            text = "" if run.failure is None else printed(run.failure, run.process_id)
            self._print(run.process_id, "" if is_late else text)
            if run.failed:
                self._noise.set_verdict(run.process_id, determine_verdict(run), run.failure)
                self._shown += self._noise.fold_victims(own_term=True, now=0.0)
            self._print(run.process_id, text if is_late else "")
            self._print(run.process_id, "after\n")
        self._shown += self._noise.expire(math.inf)

    def _print(self, rank: int, text: str) -> None:
        if text:
            piece = make_lines(self._streams[rank], text.encode())
            self._shown += self._noise.feed(piece, 0.0)

    def of(self, rank: int) -> list[str]:
        pieces = (piece.text for piece in self._shown if piece.stream.rank == rank)
        return b"".join(pieces).decode().splitlines()


def check(runs: list[RankRun], *, is_late: bool) -> None:
    """Compare what is shown of each rank's report with what the summary says of its end."""
    screen = Screen(runs, is_late)
    summarize(RunState(ranks={run.process_id: run for run in runs}))
    for run in runs:
        shown = screen.of(run.process_id)
        if run.verdict is not Verdict.VICTIM:
            assert (shown[0], shown[-1]) == ("before", "after")
        if run.failure is None:
            continue
        is_shown = [line in shown for line in printed(run.failure, run.process_id).splitlines()]
        is_consequence = "as a consequence" in describe_rank_end(run)
        assert is_consequence == (run.verdict is Verdict.VICTIM)
        if run.failed:
            assert any(is_shown) != is_consequence, (run, shown)
            assert all(is_shown) != is_consequence, (run, shown)


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("is_late", [False, True])
def test_screen_and_summary_agree_on_runs(name: str, is_late: bool) -> None:
    check(HISTORIES[name][0], is_late=is_late)


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_screen_and_summary_agree_on_reports(name: str, is_late: bool, is_first: bool) -> None:
    """Whether the hook's word of it comes before that of the rank that was killed, or after it.

    What has no calls, as the words of an exit, is printed after that; a traceback is held back.
    """
    failed, has_joined, verdict = REPORTS[name]
    is_traceback = not failed.exited and failed.traceback.startswith("Traceback")
    run = end(0, 1 if is_first else 3, -KILL, (KILL,), failure=failed)
    run.membership.joined_at = 1.0 if has_joined else None
    killed = end(1, 2, -KILL)
    check([run, killed], is_late=is_late or not is_traceback)
    assert (run.verdict, killed.verdict) == (verdict, Verdict.FAILED)


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (rank_run(0, 0), Verdict.FINE),
        (rank_run(0, 0, (signal.SIGTERM,)), Verdict.FINE),
        (rank_run(0, 3), Verdict.FAILED),
        (rank_run(0, 3, (signal.SIGTERM,), after_signal=True), Verdict.STOPPED),
        (rank_run(0, -KILL, (signal.SIGTERM, KILL)), Verdict.STOPPED),
        (rank_run(0, None), None),
        (rank_run(0, None, lost=True), None),
    ],
)
def test_end_of_a_rank_gets_its_verdict(run: RankRun, verdict: Verdict | None) -> None:
    assert determine_verdict(run) is verdict


def test_a_verdict_is_made_once() -> None:
    """Whatever is printed later, as by a process that a rank has left behind."""
    run = rank_run(0, 3)
    assert determine_verdict(run) is Verdict.FAILED
    run.stderr = "\n".join(chain(*[[line for line, _ in lines] for lines in STREAMS.values()]))
    assert determine_verdict(run) is Verdict.FAILED


@pytest.mark.parametrize(("after", "verdict"), [(4, Verdict.VICTIM), (5, Verdict.FAILED)])
def test_loss_that_a_rank_logs_among_its_last_lines_makes_it_a_victim(
    after: int, verdict: Verdict
) -> None:
    """A program may say more before it exits, but not much."""
    stderr = f"{GLOO}\n" + "closing files\n" * after
    assert determine_verdict(end(0, 1, 3, stderr=stderr)) is verdict

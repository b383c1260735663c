"""Failures that ranks have shown, so that equal failures of other ranks can be hidden; pure."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from mcjax_launch.explain.jax_messages.noise import Noise
from mcjax_launch.explain.jax_messages.tracebacks import (
    START,
    Traceback,
    find_tracebacks,
    is_in_group,
    may_begin_in,
)
from mcjax_launch.journal.colours import remove_colours
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.wire.source_lines import is_users

if TYPE_CHECKING:
    from mcjax_launch.console.pieces import Stream
    from mcjax_launch.wire.hook_messages import Failed

# So many lines behind a traceback may be part of its message.
_MOST_BEHIND = 200


class ShownFailures:
    """Record of ranks' failures, from hooks' reports, verdicts, and output that was shown.

    A failure is the same in two ranks if they have the same exception at the same lines of the
    user's code, or exit with the same text.
    """

    def __init__(self) -> None:
        self._shown: dict[object, Stream] = {}  # tracebacks
        self._behind: dict[Stream, set[bytes]] = {}  # by the first stream with these lines
        self._texts: dict[str, int] = {}  # of failures: the first rank that has printed it
        self._announced: dict[int, deque[bytes]] = {}  # by rank: lines that it is about to print
        self._in_groups: set[int] = set()  # ranks of which these are a group of exceptions
        self._failed: dict[int, bool] = {}  # by themselves: whether their failure is reported
        self._victims: dict[int, Failed] = {}  # by rank: what it has reported

    # --- what is known of ranks ---

    def announce(self, rank: int, failure: Failed) -> None:
        """Record a failure without calls that a rank has reported and is about to print."""
        text = failure.summary if failure.exited else failure.traceback
        if text and self._texts.setdefault(text, rank) != rank:
            self._expect(rank, text, failure)

    def set_verdict(self, rank: int, verdict: Verdict | None, failure: Failed | None) -> None:
        """Record the verdict on a rank, before the job ends.

        Args:
            rank: number of the rank.
            verdict: verdict on it; None if it is restarted, which makes all facts about it void.
            failure: failure that it has reported; None if it has reported none.

        """
        if verdict is None:
            for known in (self._failed, self._victims, self._announced):
                known.pop(rank, None)
            self._in_groups.discard(rank)
        elif verdict is Verdict.FAILED:
            self._failed[rank] = failure is not None
        elif verdict is Verdict.VICTIM and failure is not None:
            self._victims[rank] = failure
            text = failure.summary if failure.exited else _split_exception(failure)[1]
            self._expect(rank, text, failure)

    def _expect(self, rank: int, text: str, failure: Failed) -> None:
        lines = (line.strip().encode("utf-8", "replace") for line in text.splitlines())
        self._announced[rank] = deque(lines)
        if not failure.exited and not failure.has_calls:
            self._in_groups.add(rank)

    def announces(self, rank: int) -> bool:
        """Return whether a rank will print a known text, whose lines may be hidden."""
        return rank in self._announced

    def are_of_others(self, rank: int) -> bool:
        """Return whether ranks have failed by themselves, but not this rank."""
        return bool(self._failed) and rank not in self._failed

    def is_unreported(self, rank: int) -> bool:
        """Return whether a rank has failed by itself without reporting its failure."""
        return self._failed.get(rank) is False

    # --- what is noise ---

    def classify_line(self, line: bytes, rank: int, *, ending: bool) -> Noise | None:
        """Return a line's kind of noise if it is in an announced text; None to show it."""
        lines, victim = self._announced[rank], self._victims.get(rank)
        if victim is not None and not ending:
            return None
        line = remove_colours(line)
        if lines and line.strip() == lines[0]:
            lines.popleft()
        elif rank not in self._in_groups or not is_in_group(line):
            return None
        return Noise.SAME if victim is None else Noise.TRACEBACK

    def classify_traceback(
        self, traceback: Traceback, stream: Stream, *, at_end: bool
    ) -> Noise | None:
        """Return a traceback's kind of noise; None to show it.

        A complete traceback that must be shown, or a part of it, is recorded as shown.
        """
        is_cut = at_end and not traceback.is_over and not traceback.of_usage
        victim = self._victims.get(stream.rank)
        is_reported = (
            victim is not None
            and traceback.is_over
            and traceback.text == _split_exception(victim)[0]
        )
        follows = is_cut or is_reported or traceback.is_victims
        if follows and stream.rank not in self._failed:
            return Noise.TRACEBACK
        if not traceback.is_over:
            return None
        if self.is_known(traceback, stream):
            return Noise.INTERRUPT if traceback.is_interrupt else Noise.SAME
        self.record_traceback(traceback, stream)
        return Noise.INSIDE if _has_users_interrupt(traceback) else None

    # --- what has been shown ---

    def is_known(self, traceback: Traceback, stream: Stream) -> bool:
        """Return whether another rank has shown the same exception at the same lines of code."""
        first = self._shown.get(_make_traceback_key(traceback)) if traceback.is_over else None
        return first is not None and first is not stream

    def record_traceback(self, traceback: Traceback, stream: Stream) -> None:
        """Record that a traceback is shown, unless it is of a victim."""
        if not traceback.is_victims:
            self._shown.setdefault(_make_traceback_key(traceback), stream)

    def record_text(self, stream: Stream, text: bytes) -> None:
        """Record that a text is shown: its tracebacks, and lines that may continue one."""
        if may_begin_in(text):
            for traceback in find_tracebacks(text):
                # `classify_traceback` records a KeyboardInterrupt at the end.
                if not traceback.is_interrupt:
                    self.record_traceback(traceback, stream)
        if START in text:
            self._behind[stream] = set()
            text = text[text.index(START) :]
        behind = self._behind.get(stream)
        if behind is not None and len(behind) < _MOST_BEHIND:
            behind.update(remove_colours(text).split(b"\n")[:_MOST_BEHIND])

    def collect_lines_behind(self, stream: Stream) -> frozenset[bytes]:
        """Return the first lines that other streams have shown since a traceback of theirs began.

        Such lines may be the rest of the exception's message.
        """
        others = (lines for first, lines in self._behind.items() if first is not stream)
        return frozenset(chain.from_iterable(others))


def _has_users_interrupt(traceback: Traceback) -> bool:
    """Return whether a Ctrl-C has ended the user's code: its lines say where."""
    is_last = traceback.exception == KeyboardInterrupt.__name__
    return is_last and any(is_users(file) for file, _ in traceback.frames)


def _split_exception(failure: Failed) -> tuple[str, str]:
    """Return the exception that ended a program as text: its first line, and the rest."""
    raised = failure.handled if failure.exited else failure
    first, _, rest = raised.summary.partition("\n") if raised is not None else ("", "", "")
    return first, rest


def _make_traceback_key(traceback: Traceback) -> tuple[object, ...]:
    """Return a key that is equal for the same exception at the same lines of the user's code."""
    frames = traceback.frames
    own = tuple(line for file, line in frames if is_users(file))
    return traceback.exception, own or tuple(line for _, line in frames)

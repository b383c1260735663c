"""Filter that hides lines of JAX and Gloo without value for the user, by three rules; pure.

1. Lines that are no news in any job are never shown (`jax_messages/noise.py`), and not counted.
2. Once the job ends because a rank has failed, what other ranks print of their loss is counted, not
   shown: all stderr of ranks that failed as a consequence, and of all others what follows a line
   that tells of a lost rank. So is a traceback that is the same in a rank that has shown it.
3. Such a line, or the first line of a traceback, which may be one of a loss, holds back its rank's
   stderr for half a second: by then it is known whether another rank has failed.

Nothing is lost: -v shows all, and log files have it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcjax_launch.console.pieces import Fragment, LineFilter, Lines, Piece, Stream, make_lines
from mcjax_launch.features.explain.jax_messages import noise
from mcjax_launch.features.explain.jax_messages.tracebacks import find_tracebacks
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.journal.tails import remove_colours
from mcjax_launch.ranks import format_count, format_ranks
from mcjax_launch.wire import frames
from mcjax_launch.wire.source_lines import is_users

if TYPE_CHECKING:
    from mcjax_launch.wire.hook_messages import Failed

#: Stderr is held back for at most so many seconds before the job ends, and so many bytes of it.
HOLD_S = 0.5
MOST_HELD = 1 << 18
#: Seconds to wait for the rest of a line of Gloo's, which writes it in pieces.
REST_S = 2.0
# A chunk of so many bytes is not searched: nobody reads that much.
_FLOOD = 1 << 16
_TRACEBACK, _USAGE, _CALL = b"Traceback (most recent call last):", b"usage: ", b'  File "'
_MARKS = (_TRACEBACK, _USAGE, _CALL, *noise.LOSS_MARKS)
# Of a traceback, of argparse's message, and of a SyntaxError.
_FIRST_LINE = (
    rb"(?m)^(?:\x1b\[[\d;]*m)*"
    rb'(?:(?:  \+ Exception Group )?Traceback \(most |usage: |  File ".*", line \d+)'
)
_FOLLOW_ON, _SAME, _INTERRUPT = "of follow-on errors", "of the same error", "of KeyboardInterrupt"


class _Held:
    """Held pieces of a stream.

    Args:
        until: time at which they are shown, in time.monotonic's seconds.

    """

    def __init__(self, until: float) -> None:
        self.until = until
        self.pieces: list[Piece] = []
        self.size = 0

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.size += len(piece.text)


class NoiseFilter(LineFilter):
    """Filter that removes noise from the pieces of all ranks' streams.

    Args:
        shown_by: name of the option that shows hidden lines.

    """

    def __init__(self, shown_by: str = "-v") -> None:
        self._shown_by = shown_by
        self._never: dict[Stream, noise.NeverShown] = {}
        self._held: dict[Stream, _Held] = {}
        self._verdicts: dict[int, Verdict] = {}
        self._reported: set[int] = set()  # ranks that have reported how they failed
        self._ending = self._own_term = False
        self._shown: dict[object, int] = {}  # by a traceback: the rank that has shown it
        self._hidden: Counter[str] = Counter()  # lines, by their words
        self._same_in: set[int] = set()  # ranks whose errors are those of other ranks

    def get_patience_s(self, begun: bytes) -> float:
        """Return the seconds for which a line that may be Gloo's waits for its rest."""
        return REST_S if begun.startswith(noise.GLOO_START) else 0.0

    def set_verdict(self, rank: int, verdict: Verdict | None, failure: Failed | None) -> None:
        """Record the verdict on a rank, and whether it has reported its failure."""
        if verdict is None:  # it is restarted
            self._verdicts.pop(rank, None)
            self._reported.discard(rank)
            return
        self._verdicts[rank] = verdict
        if failure is not None:
            self._reported.add(rank)
        for stream, held in self._held.items():
            if self._ending and stream.rank == rank:
                held.until = 0.0  # it has waited for the verdict

    def feed(self, piece: Piece, now: float) -> list[Piece]:
        """Process a piece of a stream; return the pieces to show."""
        if piece.stream.number == frames.STDOUT:
            return _without_gloo(piece)
        if self._verdicts.get(piece.stream.rank) is Verdict.VICTIM and self._ending:
            return self._hide([piece], _FOLLOW_ON)
        kept = self._without_never_shown(piece)
        return self._process(kept, now) if kept is not None else []

    def _without_never_shown(self, piece: Piece) -> Piece | None:
        """Return a piece of stderr without lines that are never shown; None if none is left."""
        if isinstance(piece, Fragment) or len(piece.data) >= _FLOOD:
            return piece
        text, never = piece.text, self._never.get(piece.stream)
        is_term = self._ending and self._own_term and noise.TERM_MARK in text
        is_open = never is not None and never.is_open
        if not is_term and not is_open and not any(mark in text for mark in noise.NEVER_MARKS):
            return piece
        recognize = self._never.setdefault(piece.stream, noise.NeverShown()).recognize

        def is_hidden(line: bytes) -> bool:
            if is_term and noise.is_term(line):
                self._hidden[_FOLLOW_ON] += 1
                return True
            return recognize(line)

        return _filter_lines(piece, is_hidden)

    def _process(self, piece: Piece, now: float) -> list[Piece]:
        """Hold back stderr from a line on that may tell of a lost rank; return what to show."""
        stream = piece.stream
        held = self._held.get(stream)
        shown: list[Piece] = []
        if held is None:
            at = _find_mark(piece)
            if at < 0:
                return [piece]
            if at:
                shown.append(make_lines(stream, piece.text[:at]))
                piece = make_lines(stream, piece.text[at:])
            waits = self._ending and self._verdicts.get(stream.rank) is not Verdict.FAILED
            held = self._held[stream] = _Held(math.inf if waits else now + HOLD_S)
        held.add(piece)
        return [*shown, *self._release(stream)] if held.size > MOST_HELD else shown

    def fold_victims(self, *, own_term: bool, now: float) -> list[Piece]:
        """Hide follow-on errors from now on, because the job ends.

        Args:
            own_term: True if the SIGTERM is the launcher's own, so lines about it are noise. Lines
                about the user's SIGTERM are shown.
            now: time, in time.monotonic's seconds.

        """
        self._ending, self._own_term = True, own_term
        for stream, held in self._held.items():
            if self._verdicts.get(stream.rank) is not Verdict.FAILED:
                held.until = math.inf
        return []

    @property
    def deadline(self) -> float | None:
        """Time at which to show held pieces, in time.monotonic's seconds; None for never."""
        first = min((held.until for held in self._held.values()), default=math.inf)
        return first if first < math.inf else None

    def expire(self, now: float) -> list[Piece]:
        """Return the held pieces to show because they are due; all if `now` is infinity."""
        due = [stream for stream, held in self._held.items() if held.until <= now]
        return [piece for stream in due for piece in self._release(stream)]

    def stop_holding(self, rank: int) -> list[Piece]:
        """Remove a rank's held pieces, and return those to show."""
        held = [stream for stream in self._held if stream.rank == rank]
        return [piece for stream in held for piece in self._release(stream)]

    def _release(self, stream: Stream) -> list[Piece]:
        """Remove a stream's held pieces; return those to show, and count the others."""
        pieces, rank = self._held.pop(stream).pieces, stream.rank
        text = b"".join(piece.text for piece in pieces)
        verdict = self._verdicts.get(rank)
        if self._ending and verdict is not Verdict.FAILED:
            if verdict is Verdict.VICTIM or _find_loss(text) >= 0 or _has_victims_traceback(text):
                return self._hide(pieces, _FOLLOW_ON)
        elif self._ending and rank in self._reported and (at := _find_loss(text)) >= 0:
            # It has failed by itself; what follows is about the end of the others.
            self._hide([make_lines(stream, text[at:])], _FOLLOW_ON)
            text = text[:at]
            pieces = [make_lines(stream, text)] if text else []
        return self._show_once(stream, text, pieces)

    def _show_once(self, stream: Stream, text: bytes, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces unless another rank that has failed has shown the same error."""
        key, rank = _make_key(text), stream.rank
        first = self._shown.setdefault(key, rank) if key is not None else rank
        if not self._ending and rank not in self._verdicts:
            return pieces  # it goes on
        is_interrupt = key == KeyboardInterrupt.__name__
        if first != rank:
            self._same_in.update(() if is_interrupt else (rank,))
            return self._hide(pieces, _INTERRUPT if is_interrupt else _SAME)
        if is_interrupt and self._ending:
            shown = _select_users_calls(text)
            self._hidden[_INTERRUPT] += text.count(b"\n") - shown.count(b"\n")
            return [make_lines(stream, shown)] if shown else []
        return pieces

    def _hide(self, pieces: list[Piece], words: str) -> list[Piece]:
        """Count the lines of pieces that are hidden; return none."""
        self._hidden[words] += sum(piece.text.count(b"\n") for piece in pieces)
        return []

    def pop_mentions(self) -> list[str]:
        """Return a line for each kind of hidden lines, and forget their numbers."""
        counts, self._hidden = self._hidden, Counter()
        lines = []
        for words in (_FOLLOW_ON, _INTERRUPT, _SAME):
            if count := counts[words]:
                whose = f" in {format_ranks(sorted(self._same_in))}" if words == _SAME else ""
                number = format_count(count, "line")
                lines.append(f"hid {number} {words}{whose}; {self._shown_by} shows them")
        return lines


def _without_gloo(piece: Piece) -> list[Piece]:
    """Return a piece of stdout without Gloo's messages."""
    is_flood = len(piece.data) >= _FLOOD if isinstance(piece, Lines) else True
    if is_flood or noise.GLOO_MARK not in piece.text or isinstance(piece, Fragment):
        return [piece]
    kept = _filter_lines(piece, noise.is_gloo)
    return [kept] if kept is not None else []


def _filter_lines(lines: Lines, is_hidden: Callable[[bytes], bool]) -> Lines | None:
    """Return whole lines without those that are hidden; None if none is left."""
    every = lines.text[:-1].split(b"\n")
    kept = [line for line in every if not is_hidden(line)]
    if len(kept) == len(every):
        return lines
    return make_lines(lines.stream, b"".join(line + b"\n" for line in kept)) if kept else None


def _find_mark(piece: Piece) -> int:
    """Return where the line begins from which on stderr is held back; -1 if there is none."""
    text = piece.text
    if isinstance(piece, Fragment) or len(text) >= _FLOOD:
        return -1
    if not any(mark in text for mark in _MARKS):
        return -1
    first = re.search(_FIRST_LINE, text)
    found = [at for at in (_find_loss(text), first.start() if first else -1) if at >= 0]
    return min(found, default=-1)


def _find_loss(text: bytes) -> int:
    """Return where the first line begins that tells of a lost rank; -1 if there is none."""
    if not any(mark in text for mark in noise.LOSS_MARKS):
        return -1
    at = 0
    for line in text.split(b"\n"):
        if noise.tells_of_loss(remove_colours(line)):
            return at
        at += len(line) + 1
    return -1


def _has_victims_traceback(text: bytes) -> bool:
    return any(traceback.is_victims for traceback in find_tracebacks(text + b"\n"))


def _make_key(text: bytes) -> object:
    """Return a key that is equal for the same error of the user's code; None if there is none.

    Messages may name the rank, and calls inside libraries may differ.
    """
    lines = remove_colours(text).split(b"\n")
    said = [line.partition(b":")[0] for line in lines if line and not line.startswith(b" ")]
    first = re.match(_FIRST_LINE, text)
    is_usage = text.startswith(_USAGE) and b": error: " not in text
    if first is None or is_usage or said[-1:] in ([], [_TRACEBACK.rstrip(b":")]):
        return None
    if b"KeyboardInterrupt" in said:
        return KeyboardInterrupt.__name__
    return tuple(line for line in lines if _is_users_call(line)), tuple(said)


def _is_users_call(line: bytes) -> bool:
    call = re.match(rb'  File "(.*)", line ', line)
    return call is not None and is_users(call[1].decode("utf-8", "replace"))


def _select_users_calls(text: bytes) -> bytes:
    """Return the traceback of a KeyboardInterrupt without calls inside libraries."""
    kept, is_shown = [], True
    for line in text.splitlines(keepends=True):
        plain = remove_colours(line)
        if plain.startswith(b'  File "') or not plain.startswith(b" "):
            is_shown = not plain.startswith(b" ") or _is_users_call(plain)
        if is_shown:
            kept.append(line)
    return b"".join(kept)

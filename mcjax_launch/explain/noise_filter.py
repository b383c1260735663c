"""Filter that hides lines of JAX and Gloo without value for the user; pure.

- Gloo announces each connection on stdout; libraries report on stderr that CUDA has no driver, and
  ranks on GPUs that they end. These lines are always hidden, and not counted.
- Ranks that end because another rank has failed report that at length on stderr. These follow-on
  errors are hidden, and counted, once the job ends. The verdict of a rank decides: the failure of a
  rank that failed by itself is shown; the failure that a victim has reported is hidden.
- A rank can print follow-on errors before the kernel reports the other rank's death. So stderr is
  held back for a moment from JAX's first such line on.
- A traceback is held back until its last line has come. If the job ends because a rank has failed,
  an unfinished traceback of another rank, killed meanwhile, is a follow-on error.
- The rank that failed may outlive the other ranks: what JAX's C++ prints about their end is hidden
  too, if the rank's own failure is known.
- If several ranks end with the same exception at the same lines of the user's code, only the first
  traceback is shown. The same holds for the KeyboardInterrupt of a Ctrl-C, of which only the lines
  of the user's code are shown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from mcjax_launch.console.line_filter import LineFilter
from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream, make_lines
from mcjax_launch.explain.jax_messages.cpp_blocks import (
    LONGEST_MARK,
    BlockReader,
    has_victims_mark,
    may_begin_with,
    split_at_message,
)
from mcjax_launch.explain.jax_messages.gloo import GLOO_START, GlooListener
from mcjax_launch.explain.jax_messages.line_classifier import LineClassifier
from mcjax_launch.explain.jax_messages.noise import NO_NEWS, Noise
from mcjax_launch.explain.jax_messages.tracebacks import (
    Reader,
    Traceback,
)
from mcjax_launch.explain.shown_failures import ShownFailures
from mcjax_launch.journal.colours import remove_colours
from mcjax_launch.ranks import format_count, format_ranks
from mcjax_launch.wire import frames
from mcjax_launch.wire.source_lines import is_users

if TYPE_CHECKING:
    from mcjax_launch.journal.rank_run import Verdict
    from mcjax_launch.wire.hook_messages import Failed

#: Seconds that a traceback like another rank's waits for the job's end before it is shown.
SAME_S = 2.0
#: Seconds within which a traceback may be followed by another that it has led to.
CHAIN_S = 0.1
# A chunk of so many bytes is not searched: nobody reads that much.
_FLOOD = 1 << 16
#: Stderr is held back for at most so many seconds,
HOLD_S = 0.5
#: and at most so many bytes of it.
MOST_HELD = 1 << 18
#: Seconds to wait for the rest of a line of Gloo's, which writes it in pieces, or of a C++ block.
REST_S = 2.0
# No noise has longer lines.
_LONGEST_NOISE = 1 << 14
_SAME = "of the same error"
_INTERRUPT = "of KeyboardInterrupt"
# Words for the kinds of lines that are hidden and counted.
_WORDS: dict[Noise | None, str] = {
    Noise.VICTIM: "of follow-on errors",
    Noise.STACK: "of follow-on errors",
    Noise.TRACEBACK: "of follow-on errors",
    Noise.TERM: "of follow-on errors",
    Noise.INTERRUPT: _INTERRUPT,
    Noise.INSIDE: _INTERRUPT,
    Noise.SAME: _SAME,
}


class _Held:
    """Held pieces of a stream; each piece is searched only once."""

    __slots__ = ("_has_mark", "_tracebacks", "pieces", "same", "text", "told", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.told = 0  # number of tracebacks for which `until` was set
        self.same = False  # it waits because another rank has shown one of its tracebacks
        self.pieces: list[Piece] = []
        self.text = bytearray()
        self._tracebacks = Reader()
        self._has_mark = False

    def add(self, piece: Piece) -> None:
        text = piece.text
        self.pieces.append(piece)
        begin = max(0, len(self.text) - LONGEST_MARK)  # a mark may have begun there
        self.text += text
        self._tracebacks.feed(text)
        self._has_mark = self._has_mark or has_victims_mark(self.text[begin:])

    @property
    def tracebacks(self) -> list[Traceback]:
        """Tracebacks in these pieces."""
        return self._tracebacks.found

    def is_open(self, ending: bool) -> bool:
        """Return whether more input is needed to decide how much of the pieces to show."""
        last = self._tracebacks.found[-1:]
        if any(not traceback.is_over for traceback in last):
            return True
        victims = self._has_mark and b"]" in self.text  # as behind the file and line of C++
        return (victims or any(traceback.is_victims for traceback in last)) and not ending


class NoiseFilter(LineFilter):
    """Filter that removes noise from the pieces of all ranks' streams.

    Args:
        shown_by: name of the option that shows hidden lines.

    Attributes:
        failures: the ranks' failures, as far as they are known.

    """

    def __init__(self, shown_by: str = "-v") -> None:
        self._gloo: defaultdict[Stream, GlooListener] = defaultdict(GlooListener)
        self._blocks: defaultdict[Stream, BlockReader] = defaultdict(BlockReader)
        self._begun_gloo: dict[Stream, bytes] = {}  # behind an unfinished line
        self._shown_by = shown_by
        self._words = dict(_WORDS)
        self._hidden: dict[str, int] = dict.fromkeys(_WORDS.values(), 0)  # lines, by their words
        self._same_in: set[int] = set()  # ranks whose errors are those of other ranks
        self._ending = False
        self._at_end = False  # nothing more will come
        self.failures = ShownFailures()
        self._listeners: dict[Stream, LineClassifier] = {}
        self._held: dict[Stream, _Held] = {}
        self._begun = _BegunLines()

    def get_patience_s(self, begun: bytes) -> float:
        """Return the seconds for which a line that may be of Gloo or of a C++ block waits."""
        return REST_S if begun.startswith(GLOO_START) or may_begin_with(begun) else 0.0

    def set_verdict(self, rank: int, verdict: Verdict | None, failure: Failed | None) -> None:
        """Record the verdict on a rank; see `ShownFailures.set_verdict`."""
        self.failures.set_verdict(rank, verdict, failure)

    def announce(self, rank: int, failure: Failed) -> None:
        """Record a failure that a rank will print; see `ShownFailures.announce`."""
        self.failures.announce(rank, failure)

    def feed(self, piece: Piece, now: float) -> list[Piece]:
        """Process a piece of a stream; return the pieces to show."""
        if piece.stream.number == frames.STDOUT:
            return self._without_gloo(piece)
        return self._process_errors(self._without_stubs(piece), now)

    def _without_gloo(self, piece: Piece) -> list[Piece]:
        """Return a piece of stdout without Gloo's messages: whole lines, or the ends of lines."""
        listener = self._gloo[piece.stream]
        if isinstance(piece, Fragment):
            return self._remove_gloo(piece, listener)
        if len(piece.data) >= _FLOOD or not listener.may_be_in(piece.text):
            return [piece]
        return _filter_lines(piece, lambda line: _cut_gloo(line, listener))

    def _remove_gloo(self, part: Fragment, listener: GlooListener) -> list[Piece]:
        """Return a part of a line of stdout without Gloo's message, which waits for its newline."""
        stream = part.stream
        text = self._begun_gloo.pop(stream, b"") + part.text
        if (at := text.find(GLOO_START)) >= 0:
            gloo = text[at:]
            if not part.ends and len(gloo) <= _LONGEST_NOISE:
                self._begun_gloo[stream] = gloo
                text = text[:at]
            elif listener.may_be_in(gloo) and listener.recognize(gloo[:-1]):
                text = text[:at] + b"\n" if at or self._begun.get_line(stream) else b""
        if not text:
            return []
        shown = part._replace(text=text)
        if (line := self._begun.add(shown)) is not None:
            listener.recognize(line)
        return [shown]

    def _without_stubs(self, piece: Piece) -> list[Piece]:
        """Return a piece of stderr without messages of JAX's C++ that are no news in any job."""
        blocks = self._blocks[piece.stream]
        if isinstance(piece, Lines):
            if len(piece.data) >= _FLOOD or not blocks.may_have_stubs(piece.text):
                return [piece]
            return _filter_lines(piece, lambda line: _cut_stub(line, blocks))
        if not piece.ends or not blocks.may_have_stubs(piece.text):
            return [piece]
        text = _cut_stub(piece.text[:-1], blocks)
        if not text and not self._begun.get_line(piece.stream):
            return []
        return [piece._replace(text=(text or b"") + b"\n")]

    def _process_errors(self, pieces: Sequence[Piece], now: float) -> list[Piece]:
        return list(chain.from_iterable(self._process_error(piece, now) for piece in pieces))

    def _process_error(self, piece: Piece, now: float) -> list[Piece]:
        """Process a piece of stderr; return the pieces to show."""
        stream = piece.stream
        if self.failures.announces(stream.rank) and isinstance(piece, Lines):
            rank = stream.rank
            kept = _filter_lines(
                piece, lambda line: None if self._is_unwanted(line, rank) else line
            )
            if not kept:
                return []
            (piece,) = kept
        held = self._held.pop(stream, None)
        if held is None:
            if isinstance(piece, Fragment):  # it has waited already
                return self._select_pieces([piece], piece.text)
            # Until it is over, or its rank is.
            waits = self._ending and self.failures.are_of_others(stream.rank)
            held = _Held(math.inf if waits else now + HOLD_S)
        held.add(piece)
        if len(held.text) <= MOST_HELD and self._is_undecided(held, stream, now):
            self._held[stream] = held
            return []
        return self._select_pieces(held.pieces, bytes(held.text))

    def _is_unwanted(self, line: bytes, rank: int) -> bool:
        kind = self.failures.classify_line(line, rank, ending=self._ending)
        if kind is not None:
            self._count_if_hidden(kind, rank)
        return kind is not None

    def _is_undecided(self, held: _Held, stream: Stream, now: float) -> bool:
        """Return whether more input, or time, is needed to decide which held pieces to show."""
        if held.is_open(self._ending):
            return True
        if not held.tracebacks or held.tracebacks[-1].is_victims:
            return False
        same = self._is_known(stream, held)
        if self._ending and (same or held.tracebacks[-1].is_interrupt):
            return False
        if held.told != len(held.tracebacks):  # only another traceback delays these
            held.told, held.same = len(held.tracebacks), same
            held.until = now + (SAME_S if same else CHAIN_S)
        return now < held.until

    def _select_pieces(self, pieces: list[Piece], text: bytes) -> list[Piece]:
        """Return the pieces to show: all, or while the job ends, all but follow-on errors."""
        stream = pieces[0].stream
        if not self._ending:
            return self._pass_unchanged(pieces, text)
        listener = self._listeners.setdefault(stream, LineClassifier(is_users))
        begun = self._begun.get_line(stream)
        classify, at_end = self.failures.classify_traceback, self._at_end
        listener.expect(begun + text, lambda found: classify(found, stream, at_end=at_end))
        behind = self.failures.collect_lines_behind(stream)
        listener.same = behind
        if not listener.may_be_in(begun + text):
            return self._pass_unchanged(pieces, text)
        kept = list(chain.from_iterable(self._filter_piece(piece, listener) for piece in pieces))
        self.failures.record_text(stream, b"".join(piece.text for piece in kept))
        return kept

    def _filter_piece(self, piece: Piece, listener: LineClassifier) -> list[Piece]:
        rank = piece.stream.rank
        if isinstance(piece, Lines):
            return _filter_lines(
                piece, lambda line: self._strip_noise(line, listener.classify(line), rank)
            )
        if (line := self._begun.add(piece)) is None:
            return [piece]
        listener.classify(line)
        kept = self._strip_noise(piece.text.removesuffix(b"\n"), None, rank)
        return [piece._replace(text=(kept or b"") + b"\n")]

    def _strip_noise(self, line: bytes, kind: Noise | None, rank: int) -> bytes | None:
        """Return the part to show of a line, given its kind of noise; None to hide the line."""
        if kind is not None:
            return None if self._count_if_hidden(kind, rank) else line
        text, behind = split_at_message(line)
        return text if self._count_if_hidden(behind, rank) else line

    def _count_if_hidden(self, kind: Noise | None, rank: int) -> bool:
        """Return whether lines of a kind are hidden; if so, count a line."""
        words = self._words.get(kind)
        if words is None:
            return False
        if kind is not Noise.SAME and self.failures.is_unreported(rank):
            return False
        self._hidden[words] += 1
        if kind is Noise.SAME:
            self._same_in.add(rank)
        return True

    def pop_mentions(self) -> list[str]:
        """Return a line for each kind of hidden lines, and forget their numbers."""
        counts, self._hidden = self._hidden, dict.fromkeys(self._hidden, 0)
        lines = []
        for words, count in counts.items():
            if not count:
                continue
            whose = f" in {format_ranks(sorted(self._same_in))}" if words == _SAME else ""
            number = format_count(count, "line")
            lines.append(f"hid {number} {words}{whose}; {self._shown_by} shows them")
        return lines

    def _pass_unchanged(self, pieces: list[Piece], text: bytes) -> list[Piece]:
        self.failures.record_text(pieces[0].stream, text)
        for piece in pieces:
            if isinstance(piece, Fragment):
                self._begun.add(piece)
        return pieces

    def fold_victims(self, *, own_term: bool, now: float) -> list[Piece]:
        """Hide follow-on errors from now on, because the job ends.

        Args:
            own_term: True if the SIGTERM is the launcher's own, so lines about it are noise. Lines
                about the user's SIGTERM are shown.
            now: time, in time.monotonic's seconds.

        Returns:
            The held pieces that are to be shown now.

        """
        self._ending = True
        if not own_term:
            self._words.pop(Noise.TERM, None)
        held, self._held = self._held, {}
        again = [piece for waiting in held.values() for piece in waiting.pieces]
        return self._process_errors(again, now)

    @property
    def deadline(self) -> float | None:
        """Time at which to show held pieces, in time.monotonic's seconds.

        None if no piece is held, or if all are held without a time limit while the job ends.
        """
        first = min((held.until for held in self._held.values()), default=math.inf)
        return first if first < math.inf else None

    def expire(self, now: float) -> list[Piece]:
        """Return the held pieces to show because they are due; all if `now` is infinity."""
        self._at_end = now == math.inf
        return self._show_held(lambda stream, held: self._is_due(stream, held, now))

    def stop_holding(self, rank: int) -> list[Piece]:
        """Remove a rank's held pieces, and return those to show."""
        return self._show_held(lambda stream, held: stream.rank == rank)

    def _is_due(self, stream: Stream, held: _Held, now: float) -> bool:
        """Return whether held pieces are due.

        Ranks that fail together print at the same moment. So pieces with a traceback that another
        rank has shown meanwhile wait on.
        """
        if held.until > now:
            return False
        if now == math.inf or self._ending or held.same or not self._is_known(stream, held):
            return True
        held.same, held.until = True, now + SAME_S
        return False

    def _is_known(self, stream: Stream, held: _Held) -> bool:
        return any(self.failures.is_known(found, stream) for found in held.tracebacks)

    def _show_held(self, wanted: Callable[[Stream, _Held], bool]) -> list[Piece]:
        pieces: list[Piece] = []
        for stream, held in list(self._held.items()):
            if wanted(stream, held):
                del self._held[stream]
                pieces += self._select_pieces(held.pieces, bytes(held.text))
        return pieces


class _BegunLines:
    """Unfinished lines, joined from fragments, up to the greatest length of noise."""

    def __init__(self) -> None:
        self._lines: dict[Stream, bytes] = {}

    def get_line(self, stream: Stream) -> bytes:
        """Return a stream's unfinished line; b"" if there is none."""
        return self._lines.get(stream, b"")

    def add(self, part: Fragment) -> bytes | None:
        """Add a fragment; return the line without its newline if now complete, else None."""
        line = self._lines.pop(part.stream, b"")
        if len(line) <= _LONGEST_NOISE:
            line += part.text
        if part.ends:
            return line.removesuffix(b"\n")
        self._lines[part.stream] = line
        return None


def _cut_gloo(line: bytes, listener: GlooListener) -> bytes | None:
    """Return the part of a line before Gloo's message; None if that is the whole line."""
    if listener.recognize(line):
        return None
    at = line.find(GLOO_START)
    return line[:at] if at > 0 and listener.recognize(line[at:]) else line


def _cut_stub(line: bytes, blocks: BlockReader) -> bytes | None:
    """Return the part of a line before a message that is no news; None if that is the line."""
    if blocks.classify(remove_colours(line)) in NO_NEWS:
        return None
    text, kind = split_at_message(line)
    return text if kind in NO_NEWS else line


def _filter_lines(lines: Lines, kept_of: Callable[[bytes], bytes | None]) -> list[Piece]:
    """Return the parts of whole lines to show.

    Args:
        lines: lines of one stream.
        kept_of: called for each line, in order; returns the part to show, or None.

    """
    every = lines.text[:-1].split(b"\n")
    kept = [shown for line in every if (shown := kept_of(line)) is not None]
    if kept == every:
        return [lines]
    text = b"".join(line + b"\n" for line in kept)
    return [make_lines(lines.stream, text)] if kept else []

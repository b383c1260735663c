"""Filter that hides lines of JAX and Gloo without value for the user; pure.

- Gloo announces each connection on stdout, and libraries report on stderr that CUDA has no driver.
  These lines are always hidden, and not counted.
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
  traceback is shown. The same holds for the KeyboardInterrupt of a Ctrl-C.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain

from mcjax_launch.console.pieces import Fragment, Lines, Piece, Stream, whole_lines
from mcjax_launch.console.shown_failures import Judged, ShownFailures
from mcjax_launch.jax_messages.noise import (
    GLOO_START,
    LONGEST_MARK,
    GlooListener,
    LineClassifier,
    Noise,
    behind_text,
    has_victims_mark,
    is_stub,
    may_have_stubs,
)
from mcjax_launch.jax_messages.tracebacks import (
    Reader,
    Traceback,
)
from mcjax_launch.kernel.wire import frames
from mcjax_launch.ranks import counted, these_ranks

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
#: Seconds to wait for the rest of a Gloo line, which Gloo writes in pieces.
GLOO_S = 2.0
#: The first lines that were hidden are mentioned after so many seconds without more of them.
QUIET_S = 2.0
# No noise has longer lines.
_LONGEST_NOISE = 1 << 14


def patience_s(begun: bytes) -> float:
    """Return the extra seconds for which an unfinished line may wait for its end."""
    return GLOO_S if begun.startswith(GLOO_START) else 0.0


class HiddenLines:
    """Counter of hidden lines of one kind, and timer of the line that mentions them.

    Args:
        kind: words for the kind, to follow "3 lines".
        shown_by: name of the option that shows the lines.

    Attributes:
        deadline: time at which to mention them; None if there is nothing to mention yet.

    """

    def __init__(self, kind: str, shown_by: str = "-v") -> None:
        self.deadline: float | None = None
        self._kind = kind
        self._shown_by = shown_by
        self._count = 0
        self._ranks: set[int] = set()
        self._mentioned = False

    def add(self, count: int, now: float, rank: int | None = None) -> None:
        """Count more lines; the first are mentioned after a moment, later ones at the end.

        Args:
            count: number of further lines.
            now: time, in time.monotonic's seconds.
            rank: rank that printed them, to be named in the mention; None to name no rank.

        """
        self._count += count
        if rank is not None:
            self._ranks.add(rank)
        if count and not self._mentioned:
            self.deadline = now + QUIET_S

    def expire(self, now: float) -> list[str]:
        """Return a line that mentions hidden lines if the deadline has passed; else []."""
        return self.take() if self.deadline is not None and self.deadline <= now else []

    def take(self) -> list[str]:
        """Return a line that mentions hidden lines not mentioned before; [] if there are none."""
        count, self._count, self.deadline = self._count, 0, None
        if not count:
            return []
        more, self._mentioned = "more " if self._mentioned else "", True
        whose = f" in {these_ranks(sorted(self._ranks))}" if self._ranks else ""
        return [
            f"hid {counted(count, more + 'line')} {self._kind}{whose}; {self._shown_by} shows them"
        ]


class GlooFilter:
    """Filter that always hides Gloo's lines.

    If a Gloo line interrupts an unfinished line, such as a progress bar's, the rest of that line
    is joined to its beginning.
    """

    def __init__(self) -> None:
        self._listeners: dict[Stream, GlooListener] = {}
        self._begun = _BegunLines()
        self._held: dict[Stream, bytes] = {}  # the beginning of noise, behind an unfinished line
        self._cut: set[Stream] = set()  # whose unfinished line has lost its newline with the noise

    def feed(self, piece: Piece) -> list[Piece]:
        """Process a piece of a stream; return the pieces to show."""
        stream = piece.stream
        listener = self._listeners.get(stream)
        if listener is None:
            listener = self._listeners[stream] = GlooListener()
        if isinstance(piece, Fragment):
            return self._part(Fragment(stream, self._held.pop(stream, b"") + piece.text), listener)
        if stream in self._cut:
            first, _, rest = piece.text.partition(b"\n")
            shown = self._part(Fragment(stream, first + b"\n"), listener)
            return shown + (self.feed(whole_lines(stream, rest)) if rest else [])
        if len(piece.data) >= _FLOOD:
            del self._listeners[stream]
            return [piece]
        text = piece.text
        if not listener.may_be_in(text):
            return [piece]
        return self._lines(text, stream, listener)

    def _lines(self, text: bytes, stream: Stream, listener: GlooListener) -> list[Piece]:
        """Return the pieces to show of a piece of whole lines."""
        kept = bytearray()
        for line in text[:-1].split(b"\n"):
            if listener.unwanted(line):
                continue
            at = line.find(GLOO_START)
            if at > 0 and listener.may_be_in(line[at:]) and listener.unwanted(line[at:]):
                kept += line[:at]  # the next line goes on with it
            else:
                kept += line + b"\n"
        end = kept.rfind(b"\n") + 1
        shown: list[Piece] = [whole_lines(stream, bytes(kept[:end]))] if end else []
        if end < len(kept):
            self._cut.add(stream)
            shown += self._part(Fragment(stream, bytes(kept[end:])), listener)
        return shown

    def _part(self, part: Fragment, listener: GlooListener) -> list[Piece]:
        """Return the pieces to show of a part of a line."""
        text, stream = part.text, part.stream
        if (at := text.find(GLOO_START)) >= 0:
            noise = text[at:]
            if not part.ends and len(noise) <= _LONGEST_NOISE:
                self._held[stream] = noise
                text = text[:at]
            elif listener.may_be_in(noise) and listener.unwanted(noise[:-1]):
                text = text[:at]
                if text or self._begun.of(stream):
                    self._cut.add(stream)
        if not text:
            return []
        shown = Fragment(stream, text)
        if (line := self._begun.add(shown)) is not None:
            self._cut.discard(stream)
            listener.unwanted(line)
        return [shown]

    def finish(self) -> list[Piece]:
        """Return held parts, and newlines for lines that noise has cut; all streams have ended."""
        held = [Fragment(stream, text) for stream, text in self._held.items()]
        ends = [Fragment(stream, b"\n") for stream in self._cut]
        self._held, self._cut = {}, set()
        return [*held, *ends]


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


class NoiseFilter:
    """Filter that removes noise from the pieces of all ranks' streams.

    Args:
        shown_by: name of the option that shows hidden lines.

    Attributes:
        hidden: counters of hidden lines, one per kind; each is also a timer.

    """

    def __init__(self, shown_by: str = "-v") -> None:
        self._gloo = GlooFilter()
        follow_on = HiddenLines("of follow-on errors", shown_by)
        interrupts = HiddenLines("of the same KeyboardInterrupt", shown_by)
        self._same_error = HiddenLines("of the same error", shown_by)
        self.hidden = (follow_on, interrupts, self._same_error)
        self._counts: dict[Noise | None, HiddenLines] = {
            Noise.VICTIM: follow_on,
            Noise.STACK: follow_on,
            Noise.TRACEBACK: follow_on,
            Noise.TERM: follow_on,
            Noise.INTERRUPT: interrupts,
            Noise.SAME: self._same_error,
        }
        self._ending = False
        self._at_end = False  # nothing more will come
        self._failures = ShownFailures()
        self._listeners: dict[Stream, LineClassifier] = {}
        self._held: dict[Stream, _Held] = {}
        self._begun = _BegunLines()

    def feed(self, piece: Piece, now: float) -> list[Piece]:
        """Process a piece of a stream; return the pieces to show."""
        if piece.stream.number == frames.STDOUT:
            return self._gloo.feed(piece)
        return self._errors_in(_without_stubs(piece), now)

    def _errors_in(self, pieces: Sequence[Piece], now: float) -> list[Piece]:
        return list(chain.from_iterable(self._error(piece, now) for piece in pieces))

    def _error(self, piece: Piece, now: float) -> list[Piece]:
        """Process a piece of stderr; return the pieces to show."""
        stream = piece.stream
        if self._failures.announces(stream.rank) and isinstance(piece, Lines):
            rank = stream.rank
            kept = _sift(piece, lambda line: None if self._is_unwanted(line, rank, now) else line)
            if not kept:
                return []
            (piece,) = kept
        held = self._held.pop(stream, None)
        if held is None:
            if isinstance(piece, Fragment):  # it has waited already
                return self._sifted([piece], piece.text, now)
            # Until it is over, or its rank is.
            waits = self._ending and self._failures.are_of_others(stream.rank)
            held = _Held(math.inf if waits else now + HOLD_S)
        held.add(piece)
        if len(held.text) <= MOST_HELD and self._waits(held, stream, now):
            self._held[stream] = held
            return []
        return self._sifted(held.pieces, bytes(held.text), now)

    def fails(self, rank: int, text: str) -> None:
        """Record the text that a failing rank will print; hide it if another rank's is equal."""
        self._failures.announce(rank, text)

    def judged(self, run: Judged) -> None:
        """Record the verdict on a rank, before the job ends; no verdict means a restarted rank."""
        self._failures.judged(run)

    def _is_unwanted(self, line: bytes, rank: int, now: float) -> bool:
        kind = self._failures.kind_of_line(line, rank, ending=self._ending)
        if kind is not None:
            self._counted(kind, rank, now)
        return kind is not None

    def _waits(self, held: _Held, stream: Stream, now: float) -> bool:
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

    def _sifted(self, pieces: list[Piece], text: bytes, now: float) -> list[Piece]:
        """Return the pieces to show: all, or while the job ends, all but follow-on errors."""
        stream = pieces[0].stream
        if not self._ending:
            return self._as_they_are(pieces, text)
        listener = self._listeners.setdefault(stream, LineClassifier())
        begun = self._begun.of(stream)
        listener.expect(begun + text, lambda traceback: self._kind(traceback, stream))
        behind = self._failures.behind(stream)
        listener.same = behind
        if not listener.may_be_in(begun + text):
            return self._as_they_are(pieces, text)
        kept = list(chain.from_iterable(self._sift(piece, listener, now) for piece in pieces))
        self._failures.passed(stream, b"".join(piece.text for piece in kept))
        return kept

    def _kind(self, traceback: Traceback, stream: Stream) -> Noise | None:
        return self._failures.kind_of(traceback, stream, at_end=self._at_end)

    def _sift(self, piece: Piece, listener: LineClassifier, now: float) -> list[Piece]:
        rank = piece.stream.rank
        if isinstance(piece, Lines):
            return _sift(piece, lambda line: self._kept(line, listener.kind(line), rank, now))
        if (line := self._begun.add(piece)) is None:
            return [piece]
        listener.kind(line)
        kept = self._kept(piece.text.removesuffix(b"\n"), None, rank, now)
        return [Fragment(piece.stream, (kept or b"") + b"\n")]

    def _kept(self, line: bytes, kind: Noise | None, rank: int, now: float) -> bytes | None:
        """Return the part to show of a line, given its kind of noise; None to hide the line."""
        if kind is not None:
            return None if self._counted(kind, rank, now) else line
        text, behind = behind_text(line)
        return text if self._counted(behind, rank, now) else line

    def _counted(self, kind: Noise | None, rank: int, now: float) -> bool:
        """Return whether lines of a kind are hidden; if so, count a line."""
        hidden = self._counts.get(kind)
        if hidden is None:
            return False
        if kind is not Noise.SAME and self._failures.is_unreported(rank):
            return False
        hidden.add(1, now, rank if hidden is self._same_error else None)
        return True

    def _as_they_are(self, pieces: list[Piece], text: bytes) -> list[Piece]:
        self._failures.passed(pieces[0].stream, text)
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
            self._counts.pop(Noise.TERM, None)
        held, self._held = self._held, {}
        again = [piece for waiting in held.values() for piece in waiting.pieces]
        return self._errors_in(again, now)

    @property
    def deadline(self) -> float | None:
        """Time at which to show held pieces, in time.monotonic's seconds; None if none wait."""
        first = min((held.until for held in self._held.values()), default=math.inf)
        return first if first < math.inf else None

    def expire(self, now: float) -> list[Piece]:
        """Return the held pieces to show because they are due; all if `now` is infinity."""
        self._at_end = now == math.inf
        ends = self._gloo.finish() if self._at_end else []
        return [*ends, *self._show_held(lambda stream, held: self._is_due(stream, held, now), now)]

    def stop_holding(self, rank: int, now: float) -> list[Piece]:
        """Remove a rank's held pieces, and return those to show."""
        return self._show_held(lambda stream, held: stream.rank == rank, now)

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
        return any(self._failures.is_known(found, stream) for found in held.tracebacks)

    def _show_held(self, wanted: Callable[[Stream, _Held], bool], now: float) -> list[Piece]:
        pieces: list[Piece] = []
        for stream, held in list(self._held.items()):
            if wanted(stream, held):
                del self._held[stream]
                pieces += self._sifted(held.pieces, bytes(held.text), now)
        return pieces


class _BegunLines:
    """Unfinished lines, joined from fragments, up to the greatest length of noise."""

    def __init__(self) -> None:
        self._lines: dict[Stream, bytes] = {}

    def of(self, stream: Stream) -> bytes:
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


def _without_stubs(piece: Piece) -> list[Piece]:
    """Return a piece of stderr without lines about missing CUDA drivers."""
    if isinstance(piece, Fragment) or len(piece.data) >= _FLOOD or not may_have_stubs(piece.text):
        return [piece]
    return _sift(piece, lambda line: None if is_stub(line) else line)


def _sift(lines: Lines, kept_of: Callable[[bytes], bytes | None]) -> list[Piece]:
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
    return [whole_lines(lines.stream, text)] if kept else []

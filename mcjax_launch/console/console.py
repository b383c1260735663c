"""Console: connects the pipeline's stages, and adds the launcher's own lines.

Nothing else writes to the launcher's stdout and stderr.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.console.log_files import LogFiles
from mcjax_launch.console.pieces import LineFilter, Lines, Piece, Stream, rewrite_piece
from mcjax_launch.console.prefix import (
    Prefixes,
    RankLabel,
    format_time_of_day,
    knows_sequences,
    wants_colour,
)
from mcjax_launch.console.renderers import Live, Plain
from mcjax_launch.console.unfinished import UnfinishedLines
from mcjax_launch.journal.events import NO_EVENTS, Events
from mcjax_launch.journal.facts import OutputEnded, Said
from mcjax_launch.journal.journal import Journal
from mcjax_launch.journal.rank_run import Verdict
from mcjax_launch.journal.sink import Target
from mcjax_launch.machine.loop import find_earliest_deadline
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import OutputOptions
from mcjax_launch.wire import frames
from mcjax_launch.wording import escape_unprintable

if TYPE_CHECKING:
    from mcjax_launch.console.aside import Aside
    from mcjax_launch.console.bottom import StatusLine
    from mcjax_launch.console.collapse import Collapse, LineGroup
    from mcjax_launch.machine.loop import Timer
    from mcjax_launch.wire.frames import Data
    from mcjax_launch.wire.hook_messages import Failed

# With more unwritten bytes than this the ranks are slowed down.
_MOST_QUEUED = 1 << 20
# Output that fewer bytes than this follow is probably still on the screen.
_ON_SCREEN = 1500
# After so many turns of the loop, everything that an agent's pipe held before has been read.
_MOST_BUSY_TURNS = 16


class _Output:
    """Last stages of the pipeline for the launcher's stdout or stderr: collapse, renderer, sink."""

    def __init__(self, sink: Target, style: OutputOptions) -> None:
        self.sink = sink
        self.prefixes = Prefixes(
            not style.no_prefix,
            wants_colour(style.color, sink.is_terminal, os.environ, in_log=sink.in_log),
        )
        self._stamps = style.timestamps
        self._renderer = (
            Live(
                sink.count_rows,
                self.prefixes.format_shared_prefix,
                self._make_stamp,
                sink.is_in_foreground,
            )
            if sink.is_terminal and knows_sequences(os.environ)
            else Plain(self.prefixes.format_shared_prefix, self._make_stamp)
        )
        self._collapse: Collapse | None = None
        self._aside: Aside | None = None  # output held while a debugger has the screen
        self._errors_at: dict[int, int] = {}  # by rank: sink.taken after its last stderr

    def _make_stamp(self) -> bytes:
        return format_time_of_day(time.time()) if self._stamps else b""

    def collapse(self, ranks: int) -> None:
        """Show lines only once that several of this many ranks print."""
        from mcjax_launch.console.collapse import Collapse  # as only --collapse needs

        self._collapse = self._collapse or Collapse(ranks, self._make_stamp)

    def show(self, piece: Piece, now: float) -> None:
        """Show a piece of a rank's stream, now or after waiting for equal lines of other ranks."""
        if self._aside is not None:
            self._aside.add(piece)
            return
        if self._collapse is not None:
            if isinstance(piece, Lines) and not self._collapse.is_too_much(piece, now):
                self._show_groups(self._collapse.feed(piece, now))
                return
            self._show_groups(self._collapse.flush_before(piece))
        if isinstance(piece, Lines):
            self.sink.write(self._renderer.render_lines(piece))
        else:
            self.sink.write(self._renderer.render_fragment(piece, now))
        self._record_shown(piece.stream)

    def _show_groups(self, groups: Sequence[LineGroup]) -> None:
        self.sink.write(self._renderer.render_groups(groups))
        for group in groups:
            for stream in group.streams:
                self._record_shown(stream)

    def _record_shown(self, stream: Stream) -> None:
        if stream.number == frames.STDERR:
            self._errors_at[stream.rank] = self.sink.taken

    def is_on_screen(self, rank: int) -> bool:
        """Return whether a rank's last stderr output is probably still on the screen."""
        at = self._errors_at.get(rank)
        return at is not None and self.sink.taken - at < _ON_SCREEN

    def show_own(self, text: bytes) -> None:
        """Show whole lines of the launcher."""
        if self._aside is not None:
            self._aside.add(text)
        else:
            self.sink.write(self._renderer.render_own(text))

    @property
    def has_rows(self) -> bool:
        """True if the output has rows at the bottom that can be redrawn."""
        return isinstance(self._renderer, Live)

    def pin_rows(self) -> None:
        """Fix the rows at the bottom of the screen; output scrolls above them."""
        if isinstance(self._renderer, Live):
            self._renderer.pin_rows()

    def show_status(self, text: str) -> None:
        """Show a status text: its first line as the status row, others below; "" removes all."""
        first, *more = map(escape_unprintable, text.split("\n"))
        columns = self.sink.count_columns()
        rows = [
            self.prefixes.format_status(first, columns),
            *(line[: columns - 1] for line in more),
        ]
        shown = "\n".join(rows) if text else ""
        self.sink.write(self._renderer.render_status(shown.encode("utf-8", "replace")))

    def remove_rows(self) -> None:
        """Remove the rows, because the launcher is about to be suspended."""
        self.sink.write(self._renderer.make_room())

    def redraw_rows(self) -> None:
        """Redraw the rows after a suspension."""
        self.sink.write(self._renderer.render_again())

    def hold(self) -> None:
        """Leave the screen to a debugger; see `Console.hold`."""
        if self._aside is None and self.sink.is_terminal:
            self.finish()
            self.sink.write(self._renderer.make_room())
            from mcjax_launch.console.aside import Aside  # as only debuggers need

            self._aside = Aside(self._make_stamp)
            for part in self._renderer.pop_rows():
                self._aside.add(part)
        self.sink.hold()

    def pop_aside(self, rank: int) -> bytes:
        """Remove a rank's output since `hold`, and return it for the debugger on the screen."""
        return self._aside.pop_lines(rank) if self._aside is not None else b""

    def release(self, now: float) -> None:
        """Show the output since `hold` that was not returned by `pop_aside`."""
        aside, self._aside = self._aside, None
        for entry in aside.pop_all() if aside is not None else ():
            if isinstance(entry, bytes):
                self.show_own(entry)
            else:
                self.show(entry, now)
        self.sink.release()

    @property
    def queued(self) -> int:
        """Number of bytes that have not been written."""
        return self.sink.queued + (self._aside.size if self._aside is not None else 0)

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`, in time.monotonic's seconds; None if nothing waits."""
        collapse = () if self._collapse is None else (self._collapse,)
        return find_earliest_deadline((self._renderer, *collapse))

    def expire(self, now: float) -> None:
        """Show the output that has waited long enough."""
        if self._collapse is not None:
            self._show_groups(self._collapse.expire(now))
        self.sink.write(self._renderer.expire(now))

    def finish(self) -> None:
        """Show the lines that still wait for other ranks."""
        if self._collapse is not None:
            self._show_groups(self._collapse.flush())


class Console:
    """Writer of the ranks' output and the launcher's own lines; it never blocks.

    Args:
        style: options for the form of the output.
        targets: targets of stdout and stderr; one target twice if both are the same file.
        on_reader_gone: called when the reader of the launcher's stdout has ended.
        on_room: called when output may flow again.
        rewrite: changes a rank's lines before they are shown; log files get the original lines.
        journal: what learns of every line of the launcher, with its level.
        events: a reader of the journal that may be slow.
        verbose_option: name of the option that shows hidden lines.

    Attributes:
        is_stalled: returns whether ranks' output may be unread because readers here are slow.
        status_line: status line at the bottom of the terminal; None if there is none.

    """

    def __init__(
        self,
        style: OutputOptions,
        targets: tuple[Target, Target],
        on_reader_gone: Callable[[OSError | None], None],
        on_room: Callable[[], None],
        rewrite: Callable[[bytes], bytes] | None = None,
        verbose_option: str = "-v",
        journal: Journal | None = None,
        events: Events = NO_EVENTS,
    ) -> None:
        self._style = style
        self._journal = journal or Journal()
        self.is_stalled: Callable[[], bool] = lambda: False
        self._events = events
        events.rewrite = rewrite or bytes
        self._rewrite = rewrite
        out, err = targets
        outputs = {sink: _Output(sink, style) for sink in (out, err)}
        self._outputs = {frames.STDOUT: outputs[out], frames.STDERR: outputs[err]}
        out.watch(on_reader_gone)
        if err is not out:
            err.watch(lambda error: None)
        self._streams: dict[tuple[int, int], Stream] = {}  # those that are shown
        self._on_room = on_room
        self._logs = LogFiles(self.say)
        self.status_line = self._make_status()
        self._noise = _make_filter(style, verbose_option)
        self._unfinished = UnfinishedLines(self._noise.get_patience_s)
        self._holds = False
        self._busy_turns = 0  # of the loop, in a row, in which output has come
        self._has_been_fed = False
        self._timers: tuple[Timer, ...] = (
            self._unfinished,
            self._noise,
            *outputs.values(),
            *(() if self.status_line is None else (self.status_line,)),
        )

    def _make_status(self) -> StatusLine | None:
        """Return a status line; None without a suitable terminal, or with --quiet.

        There is none if stdout is a pipe, because its output may reach the same terminal.
        """
        out, err = self._outputs[frames.STDOUT], self._outputs[frames.STDERR]
        is_alone = out is err or not out.sink.blocks
        if not err.has_rows or not is_alone or (self._style.quiet and not self._style.status):
            return None
        from mcjax_launch.console.bottom import StatusLine  # as only a terminal needs

        if self._style.status is not None:
            err.pin_rows()
        table_rows = err.sink.count_rows if self._style.status == "table" else None
        return StatusLine(err.show_status, self._style.status is not None, table_rows)

    # --- the ranks ---

    def add_ranks(self, labels: Sequence[RankLabel], *, append: bool) -> None:
        """Add ranks: make their prefixes, and open their log files, emptied or (`append`) kept.

        Raises:
            LaunchError: a log file cannot be opened.

        """
        self._logs.open(labels, append=append)
        width = max(len(str(label.process_id)) for label in labels)
        show = self._style.show
        shown = [label for label in labels if show is None or label.process_id in show]
        for number, output in self._outputs.items():
            for label in shown:
                prefix = output.prefixes.format_rank_prefix(label, width)
                self._streams[label.process_id, number] = Stream(label.process_id, number, prefix)
            if len(shown) > 1 and self._collapses(output):
                output.collapse(len(shown))

    def _collapses(self, output: _Output) -> bool:
        """Return whether an output shows equal lines of several ranks once."""
        if self._style.collapse != "auto":
            return self._style.collapse == "always"
        return output.sink.is_terminal and not self._style.no_prefix

    def on_data(self, data: Data, at: float) -> None:
        """Write a rank's output to its log file, and show it."""
        self._logs.feed(data.rank, data.stream, data.payload)
        shown = self._streams.get((data.rank, data.stream))
        if shown is not None:
            self._has_been_fed = True
            self._filter(self._unfinished.feed(shown, data.payload, at), at)

    def _filter(self, pieces: Sequence[Piece], now: float) -> None:
        for piece in pieces:
            if self._rewrite is not None:
                piece = rewrite_piece(piece, self._rewrite)
            self._show(self._noise.feed(piece, now), now)

    def _show(self, pieces: Sequence[Piece], now: float) -> None:
        for piece in pieces:
            output = self._outputs[piece.stream.number]
            if self.status_line is not None and output is self._outputs[frames.STDERR]:
                self.status_line.hide_for_output(now)
            output.show(piece, now)

    def set_verdict(self, rank: int, verdict: Verdict | None, failure: Failed | None) -> None:
        """Record the verdict on a rank: it decides what is a follow-on error."""
        self._noise.set_verdict(rank, verdict, failure)

    def fold_victims(self, *, own_term: bool) -> None:
        """Hide follow-on errors, because the job ends; see `LineFilter.fold_victims`."""
        now = time.monotonic()
        self._show(self._noise.fold_victims(own_term=own_term, now=now), now)

    def finish_ranks(self, *, mentions: bool = True) -> None:
        """Show all held output, because all streams have ended, maybe without a last newline.

        Args:
            mentions: True to print the number of hidden lines.

        """
        now = time.monotonic()
        if self.status_line is not None:
            self.status_line.say("", now)
        # What is written byte by byte, such as an archive, ends as the rank ended it.
        ends_lines = not self._style.no_prefix or self._outputs[frames.STDOUT].sink.is_terminal
        self._filter(self._unfinished.finish(ends_lines=ends_lines), now)
        self.flush()
        for output in self._outputs.values() if not ends_lines else ():
            output.expire(math.inf)
        if mentions and not self._outputs[frames.STDOUT].sink.gone:
            for text in self._noise.pop_mentions():
                self.note(text)
        self._journal.append(OutputEnded())
        self._logs.close()

    def end_lines(self, rank: int) -> None:
        """End a rank's unfinished lines."""
        self._filter(self._unfinished.end(rank), time.monotonic())

    def flush(self) -> None:
        """Show what waits for equal lines of other ranks, or for the rest of a message."""
        self._show(self._noise.expire(math.inf), time.monotonic())
        for output in self._outputs.values():
            output.finish()

    def stop_holding(self, rank: int) -> None:
        """Show a rank's held output now, before the launcher's lines about the rank."""
        now = time.monotonic()
        self._show(self._noise.stop_holding(rank), now)
        self._outputs[frames.STDERR].finish()

    def is_on_screen(self, rank: int) -> bool:
        """Return whether a rank's last stderr output is probably still on the screen."""
        return self._outputs[frames.STDERR].is_on_screen(rank)

    # --- the launcher ---

    def say(self, text: str) -> None:
        """Show lines of the launcher, each with its prefix."""
        self._say(text, "say")

    def _say(self, text: str, level: str) -> None:
        self._journal.append(Said(text, level))
        self._show_own(text.split("\n"))

    def show_summary(self, lines: Sequence[str], *, alarm: bool) -> None:
        """Show the summary of the job's end; `alarm`: True if the job has failed."""
        self._journal.append(Said("\n".join(lines), "alarm" if alarm else "summary"))
        self._show_own(lines, headline=True, alarm=alarm)

    def _show_own(
        self, lines: Sequence[str], *, headline: bool = False, alarm: bool = False
    ) -> None:
        output = self._outputs[frames.STDERR]
        first, *others = map(escape_unprintable, lines)
        shown = output.prefixes.format_own_line(first, headline=headline, alarm=alarm)
        shown += "".join(map(output.prefixes.format_own_line, others))
        output.show_own(shown.encode("utf-8", "replace"))

    def note(self, text: str) -> None:
        """Show lines as `say` does, but not with --quiet."""
        if self._style.quiet:
            self._journal.append(Said(text, "note"))
        else:
            self._say(text, "note")

    def show_detail(self, text: str) -> None:
        """Show lines as `say` does, but only with --verbose."""
        if self._style.verbose:
            self._say(text, "detail")
        else:
            self._journal.append(Said(text, "detail"))

    def show_host_lines(self, host: str, lines: Sequence[str]) -> None:
        """Show what a command has printed on a host, with the host's name as prefix."""
        if lines:
            shown = [f"[{host}] {escape_unprintable(line)}" for line in lines]
            self._journal.append(Said("\n".join(shown), "detail"))
            text = "".join(f"{line}\n" for line in shown)
            self._outputs[frames.STDERR].show_own(text.encode("utf-8", "replace"))

    # --- time and room ---

    @property
    def deadline(self) -> float | None:
        """Time at which to call `expire`, in time.monotonic's seconds; None if nothing waits."""
        return find_earliest_deadline(self._timers)

    def expire(self, now: float) -> None:
        """Show the output that has waited long enough; `now` in seconds of time.monotonic."""
        self._expire_unfinished(now)
        self._show(self._noise.expire(now), now)
        for output in self._outputs.values():
            output.expire(now)
        if self.status_line is not None:
            self.status_line.expire(now)

    def _expire_unfinished(self, now: float) -> None:
        """Show unfinished lines that are due, unless the rest of them may still be unread."""
        if self.is_stalled():
            self._unfinished.pause()
        else:
            self._unfinished.resume(now)
        self._busy_turns = self._busy_turns + 1 if self._has_been_fed else 0
        self._has_been_fed = False
        if not 0 < self._busy_turns < _MOST_BUSY_TURNS:
            self._busy_turns = 0
            self._filter(self._unfinished.expire(now), now)

    def redraw_status(self) -> None:
        """Redraw the status line, because the terminal has another size."""
        if self.status_line is not None:
            self.status_line.redraw()

    def remove_rows(self) -> None:
        """Remove all rows, because the launcher is about to be suspended, or to fail."""
        for output in set(self._outputs.values()):
            output.remove_rows()

    def redraw_rows(self) -> None:
        """Redraw the rows after a suspension: other processes may have used the terminal."""
        for output in set(self._outputs.values()):
            output.redraw_rows()

    def hold(self) -> None:
        """Write nothing more to terminals and pipes, while a debugger has the screen."""
        if self._holds:
            return
        self._holds = True
        if self.status_line is not None:
            self.status_line.hold()
        for output in set(self._outputs.values()):
            output.hold()

    def pop_aside(self, rank: int, *, cut: bool) -> bytes:
        """Remove a rank's whole lines since `hold`, and return them for the debugger on the screen.

        Args:
            rank: the rank that the debugger has stopped.
            cut: True to keep an unfinished line for later; False to end the line here.

        """
        if not cut:
            self.end_lines(rank)
        lines = b"".join(output.pop_aside(rank) for output in set(self._outputs.values()))
        if lines and self.has_room:
            self._on_room()
        return lines

    def release(self) -> None:
        """Show the output since `hold` that `pop_aside` has not returned."""
        if self._holds:
            self._holds = False
            for output in set(self._outputs.values()):
                output.release(time.monotonic())
            if self.status_line is not None:
                self.status_line.release(time.monotonic())

    def format_own_line(self, line: str) -> str:
        """Return a line of the launcher with its prefix, for callers that write it elsewhere."""
        return self._outputs[frames.STDERR].prefixes.format_own_line(escape_unprintable(line))

    @property
    def on_terminal(self) -> bool:
        """True if stdout is a terminal."""
        return self._outputs[frames.STDOUT].sink.is_terminal

    @property
    def has_room(self) -> bool:
        """True if the readers of the output and the events keep up."""
        queued = (output.queued < _MOST_QUEUED for output in self._outputs.values())
        return all(queued) and self._events.has_room

    @property
    def is_settled(self) -> bool:
        """True if no output waits, for a moment or for its reader, and all events are written."""
        queued = any(output.queued for output in self._outputs.values())
        return self.deadline is None and not queued and self._events.is_written

    @property
    def empty(self) -> bool:
        """True if all output, events and values have been written."""
        return not any(output.queued for output in self._outputs.values()) and self._events.is_empty


def _make_filter(style: OutputOptions, verbose_option: str) -> LineFilter:
    noise = None if style.verbose else declared.load("noise_filter")
    return LineFilter() if noise is None else noise.NoiseFilter(verbose_option)

"""The console and the log files: the only writer of what the ranks and the launcher say."""

import math
import os
import time
from collections.abc import Callable, Sequence

from mcjax_launch.console.collapse import Collapse, Group
from mcjax_launch.console.lines import LONGEST, Live, Plain, Source
from mcjax_launch.console.noise_filter import Calm
from mcjax_launch.console.prefix import RankLabel
from mcjax_launch.console.sink import Sink
from mcjax_launch.console.style import Style
from mcjax_launch.errors import LaunchError
from mcjax_launch.protocol import frames
from mcjax_launch.protocol.loop import Loop
from mcjax_launch.ranks import ranges

# Above this much unwritten output the ranks are slowed down.
_MOST_QUEUED = 1 << 20
# Of a rank's stream, kept for the report.
TAIL_BYTES = 16_384

_COLLAPSED = b"1"  # no rank's colour, but bold
_COLOURS = (b"36", b"33", b"35", b"32", b"34", b"96", b"93", b"95", b"92", b"94")


def wants_colour(choice: str, is_terminal: bool, environ: "os._Environ[str]") -> bool:
    """Whether to colour, by the user's choice, NO_COLOR and FORCE_COLOR, and the stream."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"


class _Output:
    """A sink with what is unfinished on it."""

    def __init__(self, sink: Sink, style: Style) -> None:
        self.sink = sink
        self.colour = wants_colour(style.colour, sink.is_terminal, os.environ)
        live = sink.is_terminal and os.environ.get("TERM") != "dumb"
        self.renderer = Live(sink.rows) if live else Plain()
        self.collapse: Collapse | None = None


class Console:
    """Takes raw chunks of the ranks' streams and the launcher's own lines; never blocks.

    Args:
        style: how it looks.
        loop: where the sinks wait for room.
        on_reader_gone: called when nobody reads the launcher's stdout any more.
        on_room: called when output may flow again.
        keep_stdout: whether to keep the last of stdout too.

    """

    def __init__(
        self,
        style: Style,
        loop: Loop,
        on_reader_gone: Callable[[OSError | None], None],
        on_room: Callable[[], None],
        keep_stdout: bool = False,
    ) -> None:
        self._style = style
        self._keep_stdout = keep_stdout
        out, err = Sink(1, loop, on_room), Sink(2, loop, on_room)
        if err.identity == out.identity:
            err = out
        self._sinks = {frames.STDOUT: out, frames.STDERR: err}
        outputs = {sink: _Output(sink, style) for sink in (out, err)}
        self._outputs = {stream: outputs[sink] for stream, sink in self._sinks.items()}
        out.watch(on_reader_gone)
        if err is not out:
            err.watch(lambda error: None)
        self._sources: dict[tuple[int, int], Source] = {}
        self._logs: dict[tuple[int, int], int] = {}
        self._tails: dict[tuple[int, int], bytes] = {}
        self._unfinished: dict[Source, _Output] = {}  # those that have a line due
        self._calm = None if style.verbose else Calm()

    # --- the ranks ---

    def add_ranks(self, labels: Sequence[RankLabel], *, append: bool) -> None:
        """Make the prefixes and open the log files, anew or to go on.

        Raises:
            LaunchError: a log file cannot be opened.

        """
        width = max(len(str(label.process_id)) for label in labels)
        for label in labels:
            name = f"{label.process_id:>{width}}{' ' + label.host if label.host else ''}"
            for stream, output in self._outputs.items():
                code = _COLOURS[label.process_id % len(_COLOURS)]
                prefix = self._prefix(name.encode(), code, output.colour)
                self._sources[label.process_id, stream] = Source(prefix)
            if label.folder is not None:
                self._logs[label.process_id, frames.STDOUT] = _open_log(label.log("out"), append)
                self._logs[label.process_id, frames.STDERR] = _open_log(label.log("err"), append)
        if self._style.collapse:
            shown = [label for label in labels if self._shows(label.process_id)]
            for output in self._outputs.values():  # one for both streams, if they are one
                output.collapse = output.collapse or Collapse(len(shown))

    def _shows(self, rank: int) -> bool:
        return self._style.show is None or rank in self._style.show

    def _prefix(self, name: bytes, code: bytes, colour: bool) -> bytes:
        if not self._style.prefix:
            return b""
        if not colour:
            return b"[%s] " % name
        return b"\x1b[%sm[%s]\x1b[0m " % (code, name)

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """More bytes of a rank."""
        if self._logs:
            self._log(rank, stream, data)
        if stream == frames.STDERR or self._keep_stdout:
            tail = self._tails.get((rank, stream), b"") + data[-TAIL_BYTES:]
            self._tails[rank, stream] = tail[-TAIL_BYTES:]
        if self._shows(rank):
            self._show(rank, stream, data)

    def _show(self, rank: int, stream: int, data: bytes) -> None:
        if self._calm is not None:
            source = self._sources[rank, stream]
            data = self._calm.feed(rank, stream, source, data, time.monotonic())
        if data:
            self._show_all(rank, stream, data)

    def _show_all(self, rank: int, stream: int, data: bytes) -> None:
        output, source = self._outputs[stream], self._sources[rank, stream]
        if output.collapse is not None:
            data = self._collapsed(rank, stream, source, data, output, output.collapse)
        if data:
            due = source.due
            text = output.renderer.feed(source, data, time.monotonic(), self._stamp())
            output.sink.write(text)
            if source.due is not None:
                if source.due != due and self._calm is not None:
                    source.due += self._calm.patience_s(source)
                self._unfinished[source] = output

    def _collapsed(
        self,
        rank: int,
        stream: int,
        source: Source,
        data: bytes,
        output: _Output,
        collapse: Collapse,
    ) -> bytes:
        """Hold back the whole lines of a chunk; the rest of it."""
        now, stamp = time.monotonic(), self._stamp()
        if source.begun_to_show and (start := data.find(b"\n") + 1):  # it is completed in place
            self._write(output, collapse.flush())
            output.sink.write(output.renderer.feed(source, data[:start], now, stamp))
            data = data[start:]
        if end := data.rfind(b"\n") + 1:
            lines = (bytes(source.partial) + data[: end - 1]).split(b"\n")
            source.forget()
            self._write(output, collapse.feed(rank, stream, lines, now, stamp))
        elif len(source.partial) + len(data) > LONGEST:  # a piece will be shown
            self._write(output, collapse.flush())
        return data[end:]

    def _write(self, output: _Output, groups: Sequence[Group]) -> None:
        """Show lines that are no longer held back."""
        text = bytearray()
        for group in groups:
            if len(group.ranks) == 1:
                prefix = self._sources[group.ranks[0], group.stream].prefix
            else:
                prefix = self._prefix(ranges(group.ranks).encode(), _COLLAPSED, output.colour)
            text += group.stamp + prefix + output.renderer.final(group.text) + b"\n"
        if text:
            output.sink.write(output.renderer.own(bytes(text)))

    def fold_victims(self, culprit: int | None, *, own_term: bool) -> None:
        """The job ends: leave out what JAX says of that, see Calm."""
        if self._calm is not None:
            for rank, data in self._calm.fold_victims(culprit, own_term=own_term):
                self._show(rank, frames.STDERR, data)

    def _log(self, rank: int, stream: int, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._logs[rank, stream], rest) :]
        except OSError as error:
            os.close(self._logs.pop((rank, stream)))
            self.say(f"the log of rank {rank} ends here: {error.strerror}; the job goes on")
        except KeyError:  # it ended so before
            pass

    def finish_ranks(self) -> None:
        """All streams have ended, maybe without a last newline."""
        self._show_held(math.inf)
        for (rank, stream), source in self._sources.items():
            if source.partial:
                self._show(rank, stream, b"\n")
        self._show_held(math.inf)
        for output in self._outputs.values():
            if output.collapse is not None:
                self._write(output, output.collapse.flush())
        self._tell_left_out(None)
        for log in self._logs.values():
            os.close(log)
        self._logs.clear()

    def tails(self, rank: int) -> tuple[str, str]:
        """The last of what a rank wrote to stdout, where that is kept, and to stderr."""
        out, err = (self._tails.get((rank, s), b"") for s in (frames.STDOUT, frames.STDERR))
        return out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def _stamp(self) -> bytes:
        if not self._style.timestamps:
            return b""
        now = time.time()
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        return f"{clock}.{int(now * 1000) % 1000:03} ".encode()

    # --- the launcher ---

    def say(self, text: str) -> None:
        """Lines of the launcher's own, each marked as such."""
        lines = "".join(f"mcjax-launch: {line}\n" for line in text.split("\n"))
        output = self._outputs[frames.STDERR]
        output.sink.write(output.renderer.own(lines.encode("utf-8", "replace")))

    def note(self, text: str) -> None:
        """As `say`, unless the user wants quiet."""
        if not self._style.quiet:
            self.say(text)

    def detail(self, text: str) -> None:
        """As `say`, if the user wants details."""
        if self._style.verbose:
            self.say(text)

    def _tell_left_out(self, now: float | None) -> None:
        for words in self._calm.words(now) if self._calm is not None else ():
            self.note(words)

    def _show_held(self, now: float) -> None:
        for rank, data in self._calm.expire(now) if self._calm is not None else ():
            self._show_all(rank, frames.STDERR, data)

    # --- time and room ---

    @property
    def deadline(self) -> float | None:
        """When something that waits is to be shown."""
        times = [source.due for source in self._unfinished]
        times += [o.collapse.due for o in self._outputs.values() if o.collapse is not None]
        times += [self._calm.due] if self._calm is not None else []
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> None:
        """Show the lines that have waited long enough."""
        self._show_held(now)
        self._tell_left_out(now)
        for output in self._outputs.values():
            if output.collapse is not None:
                self._write(output, output.collapse.expire(now))
        for source, output in list(self._unfinished.items()):
            if source.due is not None and source.due <= now:
                output.sink.write(output.renderer.expire(source, self._stamp()))
            if source.due is None:
                del self._unfinished[source]

    @property
    def on_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return self._sinks[frames.STDOUT].is_terminal

    @property
    def has_room(self) -> bool:
        """Whether the readers keep up."""
        return all(sink.queued < _MOST_QUEUED for sink in self._sinks.values())

    @property
    def empty(self) -> bool:
        """Whether everything has been written."""
        return not any(sink.queued for sink in self._sinks.values())


def _open_log(path: str, append: bool) -> int:
    how = os.O_APPEND if append else os.O_TRUNC
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o666)
    except OSError as error:
        raise LaunchError(f"--log-dir: {path}: {error.strerror}") from None

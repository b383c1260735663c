"""The console and the log files: the only writer of what the ranks and the launcher say."""

import os
import time
from collections.abc import Callable, Sequence

from mcjax_launch.agent import wire
from mcjax_launch.agent.loop import Loop
from mcjax_launch.errors import LaunchError
from mcjax_launch.labels import RankLabel
from mcjax_launch.lines import Live, Plain, Source
from mcjax_launch.sink import Sink
from mcjax_launch.style import Style

# Above this much unwritten output the ranks are slowed down.
_MOST_QUEUED = 1 << 20
# Of a rank's stream, kept for the report.
TAIL_BYTES = 16_384

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
        self._sinks = {wire.STDOUT: out, wire.STDERR: err}
        outputs = {sink: _Output(sink, style) for sink in (out, err)}
        self._outputs = {stream: outputs[sink] for stream, sink in self._sinks.items()}
        out.watch(on_reader_gone)
        if err is not out:
            err.watch(lambda error: None)
        self._sources: dict[tuple[int, int], Source] = {}
        self._logs: dict[tuple[int, int], int] = {}
        self._tails: dict[tuple[int, int], bytes] = {}
        self._unfinished: dict[Source, _Output] = {}  # those that have a line due

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
                prefix = self._prefix(name.encode(), label.process_id, output.colour)
                self._sources[label.process_id, stream] = Source(prefix)
            if label.folder is not None:
                self._logs[label.process_id, wire.STDOUT] = _open_log(label.log("out"), append)
                self._logs[label.process_id, wire.STDERR] = _open_log(label.log("err"), append)

    def _prefix(self, name: bytes, process_id: int, colour: bool) -> bytes:
        if not self._style.prefix:
            return b""
        if not colour:
            return b"[%s] " % name
        return b"\x1b[%sm[%s]\x1b[0m " % (_COLOURS[process_id % len(_COLOURS)], name)

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        """More bytes of a rank."""
        if self._logs:
            self._log(rank, stream, data)
        if stream == wire.STDERR or self._keep_stdout:
            tail = self._tails.get((rank, stream), b"") + data[-TAIL_BYTES:]
            self._tails[rank, stream] = tail[-TAIL_BYTES:]
        if self._style.show is None or rank in self._style.show:
            output, source = self._outputs[stream], self._sources[rank, stream]
            text = output.renderer.feed(source, data, time.monotonic(), self._stamp())
            output.sink.write(text)
            if source.due is not None:
                self._unfinished[source] = output

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
        """All streams have ended."""
        for (_, stream), source in self._sources.items():
            output = self._outputs[stream]
            output.sink.write(output.renderer.finish(source, self._stamp()))
        for log in self._logs.values():
            os.close(log)
        self._logs.clear()

    def tails(self, rank: int) -> tuple[str, str]:
        """The last of what a rank wrote to stdout, where that is kept, and to stderr."""
        out, err = (self._tails.get((rank, s), b"") for s in (wire.STDOUT, wire.STDERR))
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
        output = self._outputs[wire.STDERR]
        output.sink.write(output.renderer.own(lines.encode("utf-8", "replace")))

    def note(self, text: str) -> None:
        """As `say`, unless the user wants quiet."""
        if not self._style.quiet:
            self.say(text)

    def detail(self, text: str) -> None:
        """As `say`, if the user wants details."""
        if self._style.verbose:
            self.say(text)

    # --- time and room ---

    @property
    def deadline(self) -> float | None:
        """When the next unfinished line is due."""
        return min((s.due for s in self._unfinished if s.due is not None), default=None)

    def expire(self) -> None:
        """Show the unfinished lines that are due."""
        now = time.monotonic()
        for source, output in list(self._unfinished.items()):
            if source.due is not None and source.due <= now:
                output.sink.write(output.renderer.expire(source, self._stamp()))
            if source.due is None:
                del self._unfinished[source]

    @property
    def on_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return self._sinks[wire.STDOUT].is_terminal

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

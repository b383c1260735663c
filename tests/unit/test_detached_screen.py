"""What a terminal that returns shows of the events that were kept."""

import io
import json
from typing import Any

from mcjax_launch.api.events import Line, Reporter
from mcjax_launch.api.streams import Echo
from mcjax_launch.detached.screen import Screen


class Shown:
    """A console that keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""
        self.lines: list[str] = []

    def feed(self, rank: int, stream: int, data: bytes) -> None:
        self.data += data

    def summary(self, lines: list[str], *, alarm: bool) -> None:
        self.lines += lines

    def in_sight(self, rank: int) -> bool:
        return False

    def shows_past(self, at: float | None) -> None:
        pass


def output(text: str) -> dict[str, Any]:
    return {"event": "output", "rank": 0, "stream": "stdout", "text": text}


def tail_of(rows: int, *events: dict[str, Any]) -> Shown:
    shown = Shown()
    screen = Screen(lambda: shown)  # type: ignore[arg-type,return-value]
    screen.show_tail([json.dumps(event).encode() for event in events], rows)
    return shown


def test_tail_cuts_only_the_first_event_that_is_too_long() -> None:
    assert tail_of(2, output("a\nb\nc\nd\n"), output("e\n")).data == b"d\ne\n"


def test_tail_keeps_output_after_a_long_note() -> None:
    alarm = {"event": "note", "level": "alarm", "text": "\n".join("123456789")}
    shown = tail_of(4, alarm, output("a\nb\n"))
    assert (shown.data, len(shown.lines)) == (b"a\nb\n", 9)


def test_unfinished_line_of_a_rank_ends_when_the_rank_is_restarted() -> None:
    lines: list[Line] = []
    reporter = Reporter(lines.append, None)
    for event in (output("no newline"), {"event": "restart", "rank": 0}, output("second\n")):
        reporter.report(event)
    assert [line.text for line in lines] == ["no newline", "second"]


def test_echo_writes_what_the_stream_cannot_encode_in_another_way() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert Echo(stream).feed(memoryview("é\n".encode()))
    assert stream.buffer.getvalue() == b"\\xe9\n"

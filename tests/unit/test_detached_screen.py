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

    def show_summary(self, lines: list[str], *, alarm: bool) -> None:
        self.lines += lines

    def is_on_screen(self, rank: int) -> bool:
        return False

    def restart_rank(self, rank: int) -> None:
        pass

    def set_stamp_time(self, at: float | None) -> None:
        pass


def output(text: str, rank: int = 0) -> dict[str, Any]:
    return {"event": "output", "rank": rank, "stream": "stdout", "text": text}


def tail_of(rows: int, *events: dict[str, Any], then: tuple[dict[str, Any], ...] = ()) -> Shown:
    shown = Shown()
    screen = Screen(lambda: shown)  # type: ignore[arg-type,return-value]
    screen.show_tail([json.dumps(event).encode() for event in events], rows)
    screen.show([json.dumps(event).encode() for event in then])
    return shown


def test_tail_cuts_only_the_first_event_that_is_too_long() -> None:
    assert tail_of(2, output("a\nb\nc\nd\n"), output("e\n")).data == b"d\ne\n"


def test_tail_keeps_output_after_a_long_note() -> None:
    alarm = {"event": "note", "level": "alarm", "text": "\n".join("123456789")}
    shown = tail_of(4, alarm, output("a\nb\n"))
    assert (shown.data, len(shown.lines)) == (b"a\nb\n", 9)


def test_line_that_began_before_the_tail_is_shown_whole_when_it_goes_on() -> None:
    begun = [output(text, rank=1) for text in ("old\nload", "ing ... ")]
    others = [output(f"{number}\n") for number in range(9)]
    end = output("done\n", rank=1)
    assert tail_of(3, *begun, *others, then=(end,)).data == b"6\n7\n8\nloading ... done\n"
    assert tail_of(3, *begun, *others, end).data == b"7\n8\nloading ... done\n"
    long = output("done\na\nb\n", rank=1)
    assert tail_of(3, *begun, *others, long).data == b"loading ... done\na\nb\n"
    assert tail_of(2, *begun, *others, long, then=(end,)).data == b"a\nb\ndone\n"


def test_line_that_began_before_the_tail_ends_when_its_rank_is_restarted() -> None:
    others = [output(f"{number}\n") for number in range(9)]
    for again in (
        {"event": "screen", "call": "restart_rank", "values": [1]},
        {"event": "restart", "rank": None},
    ):
        shown = tail_of(1, output("loading ... ", rank=1), *others, again, output("second\n", 1))
        assert shown.data == b"second\n"


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

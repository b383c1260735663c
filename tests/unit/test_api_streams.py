"""What the API makes of a job's output: lines for `on_line`, and an echo on any stream."""

import io
from typing import Any

from mcjax_launch.python.job import Echo, Reporter
from mcjax_launch.python.result import Line


def output(text: str) -> dict[str, Any]:
    return {"event": "output", "rank": 0, "stream": "stdout", "text": text}


def test_unfinished_line_of_a_rank_ends_when_the_rank_is_restarted() -> None:
    lines: list[Line] = []
    reporter = Reporter(lines.append, None)
    for event in (output("no newline"), {"event": "restart", "rank": 0}, output("second\n")):
        reporter.report(event)
    assert [line.text for line in lines] == ["no newline", "second"]


def test_echo_writes_what_the_stream_cannot_encode_in_another_way() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert Echo(lambda: stream).feed(memoryview("é\n".encode()))
    assert stream.buffer.getvalue() == b"\\xe9\n"

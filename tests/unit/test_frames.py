"""Frames, however the bytes are cut."""

import pytest

from mcjax_launch.wire import frames, messages
from mcjax_launch.wire.codec import Malformed

BYE = messages.Bye(("12 (sleeping)",), (messages.Leftover(None, 12, "sleep 9"),))
EXITED = messages.Exited(3, -9, (15, 9), None, 0.25, 1000)
STREAM = (
    frames.encode_message(messages.Greeting(messages.VERSION))
    + frames.make_data_header(70_000, 2, 5)
    + b"hello"
    + frames.encode_message(EXITED)
    + frames.encode_raw("", 0, b"of a file")
    + frames.encode_raw("verify_spmd", 70_001, b"bytes")
    + frames.make_data_header(70_000, 2, 0)
    + frames.encode_message(BYE)
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 20, len(STREAM)])
def test_frames_are_decoded_from_any_chunks(size: int) -> None:
    decoder = frames.Decoder()
    seen: list[object] = []
    data, of_file, raw = b"", b"", b""
    for at in range(0, len(STREAM), size):
        for frame in decoder.feed(STREAM[at : at + size]):
            if isinstance(frame, frames.Data):
                assert (frame.rank, frame.stream) == (70_000, 2)
                data += frame.payload
            elif isinstance(frame, frames.Raw) and frame.feature:
                assert (frame.feature, frame.number) == ("verify_spmd", 70_001)
                raw += frame.payload
            elif isinstance(frame, frames.Raw):
                of_file += frame.payload
            else:
                seen.append(frame)
    assert (data, of_file, raw) == (b"hello", b"of a file", b"bytes")
    assert seen == [messages.Greeting(messages.VERSION), EXITED, BYE]


def header(kind: int, length: int) -> bytes:
    return frames.HEADER.pack(kind, 0, 0, length)


def message(text: bytes) -> bytes:
    return header(frames.MESSAGE, len(text)) + text


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (header(4, 0), "unknown kind of frame 4"),
        (header(255, 1 << 31), "unknown kind of frame 255"),
        (header(frames.MESSAGE, 101), "a frame of 101 bytes"),
        (header(frames.DATA, (1 << 16) + 257), "a frame of 65793 bytes"),
        (header(frames.RAW, (1 << 32) - 1), "a frame of 4294967295 bytes"),
        (frames.HEADER.pack(frames.RAW, 3, 0, 2) + b"..", "raw bytes of no feature"),
        (frames.encode_raw("a/b", 0, b""), "raw bytes of no feature"),
        (message(b"x"), "no JSON"),
        (message(b'["nothing.Bye",[]]'), "unknown message 'nothing.Bye'"),
        (message(b"\xff"), "'utf-8' codec can't decode"),
        (message(b"[]"), "expected a name and values"),
        (message(b'["Stop",[15,1.0,1.0]]'), "Stop in place of a ToLauncher"),
        (message(b'["Bye",[]]'), "Bye: expected 4 values of Bye"),
        (
            message(b'["Exited",[1e400,0,[],"",0,0,false]]'),
            "Exited: expected a whole number, not float",
        ),
        (
            message(b'["Exited",[%d,0,[],"",0,0,false]]' % (1 << 80)),
            "Exited: expected a number of 64 bits",
        ),
    ],
)
def test_malformed_frame_is_refused_early(data: bytes, what: str) -> None:
    """It is refused as soon as that is clear, before all of it has come."""
    decoder = frames.Decoder(messages.ToLauncher, longest=100)
    assert list(decoder.feed(frames.encode_message(EXITED))) == [EXITED]
    with pytest.raises(Malformed, match=what):
        list(decoder.feed(data))

"""Frames, however the bytes are cut."""

import pytest

from mcjax_launch.protocol import frames

STREAM = (
    frames.message(frames.HELLO, {"pid": 7})
    + frames.header(frames.DATA, 5, rank=3, stream=2)
    + b"hello"
    + frames.message(frames.EXITED, {"status": 0}, rank=3)
    + frames.header(frames.DATA, 0, rank=1, stream=1)
    + frames.message(frames.BYE, {})
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 20, len(STREAM)])
def test_decoding(size: int) -> None:
    decoder = frames.Decoder()
    seen = []
    data = b""
    for at in range(0, len(STREAM), size):
        for frame in decoder.feed(STREAM[at : at + size]):
            if frame.kind == frames.DATA:
                assert (frame.rank, frame.stream) == (3, 2)
                data += frame.payload
            else:
                seen.append((frame.kind, frame.rank, frame.body()))
    assert data == b"hello"
    assert seen == [
        (frames.HELLO, 0, {"pid": 7}),
        (frames.EXITED, 3, {"status": 0}),
        (frames.BYE, 0, {}),
    ]


def test_data_is_handed_on_as_it_comes() -> None:
    decoder = frames.Decoder()
    head = frames.header(frames.DATA, 1 << 30, rank=0, stream=1)
    assert [f.payload for f in decoder.feed(head + b"first")] == [b"first"]
    assert [f.payload for f in decoder.feed(memoryview(b"second"))] == [b"second"]

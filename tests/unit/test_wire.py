"""Frames, however the bytes are cut."""

import pytest

from mcjax_launch.agent import wire

STREAM = (
    wire.message(wire.HELLO, {"pid": 7})
    + wire.header(wire.DATA, 5, rank=3, stream=2)
    + b"hello"
    + wire.message(wire.EXITED, {"status": 0}, rank=3)
    + wire.header(wire.DATA, 0, rank=1, stream=1)
    + wire.message(wire.BYE, {})
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 20, len(STREAM)])
def test_decoding(size: int) -> None:
    decoder = wire.Decoder()
    seen = []
    data = b""
    for at in range(0, len(STREAM), size):
        for frame in decoder.feed(STREAM[at : at + size]):
            if frame.kind == wire.DATA:
                assert (frame.rank, frame.stream) == (3, 2)
                data += frame.payload
            else:
                seen.append((frame.kind, frame.rank, frame.body()))
    assert data == b"hello"
    assert seen == [
        (wire.HELLO, 0, {"pid": 7}),
        (wire.EXITED, 3, {"status": 0}),
        (wire.BYE, 0, {}),
    ]


def test_data_is_handed_on_as_it_comes() -> None:
    decoder = wire.Decoder()
    head = wire.header(wire.DATA, 1 << 30, rank=0, stream=1)
    assert [f.payload for f in decoder.feed(head + b"first")] == [b"first"]
    assert [f.payload for f in decoder.feed(memoryview(b"second"))] == [b"second"]

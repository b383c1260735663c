"""Frames, however the bytes are cut."""

import pytest

from mcjax_launch.protocol import frames, messages

BYE = messages.Bye(("12 (sleeping)",), 3)
EXITED = messages.Exited(3, -9, (15, 9), None, 0.25, 1000)
STREAM = (
    frames.encoded(messages.Hello(messages.VERSION))
    + frames.data_header(70_000, 2, 5)
    + b"hello"
    + frames.encoded(EXITED)
    + frames.content(b"of a file")
    + frames.data_header(1, 1, 0)
    + frames.encoded(BYE)
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 20, len(STREAM)])
def test_decoding(size: int) -> None:
    decoder = frames.Decoder()
    seen: list[object] = []
    data = b""
    for at in range(0, len(STREAM), size):
        for frame in decoder.feed(STREAM[at : at + size]):
            if isinstance(frame, frames.Data):
                assert (frame.rank, frame.stream) == (70_000, 2)
                data += frame.payload
            elif isinstance(frame, frames.Content):
                seen.append(frame.payload)
            else:
                seen.append(frame)
    assert data == b"hello"
    assert seen == [messages.Hello(messages.VERSION), EXITED, b"of a file", BYE]


def test_data_is_handed_on_as_it_comes() -> None:
    decoder = frames.Decoder()
    head = frames.data_header(0, 1, 1 << 30)

    def payloads(data: bytes | memoryview) -> list[bytes]:
        pieces = list(decoder.feed(data))
        assert all(isinstance(piece, frames.Data) for piece in pieces)
        return [bytes(piece.payload) for piece in pieces if isinstance(piece, frames.Data)]

    assert payloads(head + b"first") == [b"first"]
    assert payloads(memoryview(b"second")) == [b"second"]

"""Readers of the descriptors on which a launcher reports to the program that started it."""

from __future__ import annotations

import codecs
import json
import os
import select
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

_MOST_AT_ONCE = 1 << 20
_LAST_BYTES = 4096


class Consumer(Protocol):
    """Consumer of the bytes from a descriptor."""

    def feed(self, data: memoryview) -> bool:
        """Process bytes of a buffer that is reused after the call; return False to stop reading."""


def read_all(readers: Mapping[int, Consumer], close: Callable[[int], object]) -> None:
    """Read from several descriptors until their writers have closed all of them.

    Args:
        readers: consumer for each descriptor.
        close: closes a descriptor that has ended, or whose consumer wants no more.

    """
    buffer = memoryview(bytearray(_MOST_AT_ONCE))
    poll = select.poll()
    for fd in readers:
        poll.register(fd, select.POLLIN)
    left = set(readers)
    while left:
        for fd, _ in poll.poll():
            count = os.readv(fd, [buffer])
            if not count or not readers[fd].feed(buffer[:count]):
                poll.unregister(fd)
                left.remove(fd)
                close(fd)


class EventLines:
    """Consumer of events, each a line of JSON.

    Args:
        on_event: called with each event, parsed.

    """

    def __init__(self, on_event: Callable[[dict[str, Any]], object]) -> None:
        self._on_event = on_event
        self._begun = bytearray()  # of a line that is not complete

    def feed(self, data: memoryview) -> bool:
        *lines, rest = bytes(data).split(b"\n")
        for line in lines:
            self._begun += line
            self._on_event(json.loads(self._begun))
            self._begun.clear()
        self._begun += rest
        return True


class Echo:
    """Consumer that copies bytes to a text stream such as sys.stdout, maybe a notebook's.

    Args:
        get_stream: returns the stream, which is flushed after each write: sys.stdout may change.

    Attributes:
        is_muted: True to drop the bytes.

    """

    def __init__(self, get_stream: Callable[[], TextIO]) -> None:
        self.is_muted = False
        self._get_stream = get_stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: memoryview) -> bool:
        if self.is_muted:
            return True
        text = self._decoder.decode(data)
        stream = self._get_stream()
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError as error:  # the stream takes ASCII, for example
                encoded = text.encode(error.encoding, "backslashreplace")
                stream.write(encoded.decode(error.encoding))
            stream.flush()
        except (OSError, ValueError):  # its reader is gone, or it has been closed
            return False
        return True


class LastWords:
    """Consumer of a launcher's stderr that keeps the end: why it ended without a summary."""

    def __init__(self) -> None:
        self._last = b""

    def feed(self, data: memoryview) -> bool:
        self._last = (self._last + data)[-_LAST_BYTES:]
        return True

    @property
    def line(self) -> str:
        """Last line; "" if there is none."""
        return (self._last.decode("utf-8", "replace").strip().splitlines() or [""])[-1]

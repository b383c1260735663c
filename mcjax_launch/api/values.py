"""The values that a function returns or raises in the ranks, read from the launcher."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Literal

from mcjax_launch.features.function.messages import MAIN, Returned, unpickled
from mcjax_launch.kernel.wire import messages
from mcjax_launch.kernel.wire.frames import Decoder, Raw


class RankValues:
    """Collects the values of a call: each part of a pickle is copied once, to where it stays."""

    def __init__(self) -> None:
        self._decoder = Decoder(messages.ToLauncher)
        self._of_ranks: dict[int, _Parts] = {}

    def feed(self, data: memoryview) -> bool:
        """Take some frames; return True: more are wanted."""
        for frame in self._decoder.feed(data):
            match frame:
                case messages.Started(rank):
                    self._of_ranks.pop(rank, None)  # that of an earlier process
                case messages.FromHook(rank, Returned(kind, sizes)):
                    self._of_ranks[rank] = _Parts(kind, sizes)
                case Raw(number=rank, payload=payload) if rank in self._of_ranks:
                    self._of_ranks[rank].fill(payload)
        return True

    def has(self, kind: Literal["value", "raised"], rank: int) -> bool:
        """Return whether a rank has returned a value, or raised what can be raised here."""
        returned = self._of_ranks.get(rank)
        return returned is not None and returned.kind == kind and returned.complete

    def pop(self, rank: int) -> Any:
        """Remove what a rank has returned or raised, and return it.

        Raises:
            Exception: whatever it takes to be unpickled is not to be had here.

        """
        sys.modules.setdefault(MAIN, sys.modules["__main__"])  # as multiprocessing does
        return unpickled(self._of_ranks.pop(rank).parts)


class _Parts:
    """The parts of a pickle, each in memory of its own."""

    def __init__(self, kind: str, sizes: tuple[int, ...]) -> None:
        self.kind = kind
        self.parts = [bytearray(size) for size in sizes]
        self._empty = deque(memoryview(part) for part in self.parts if part)

    @property
    def complete(self) -> bool:
        return not self._empty

    def fill(self, data: bytes) -> None:
        """Copy the next bytes into the parts that are not complete."""
        rest = memoryview(data)
        while rest and self._empty:
            room = self._empty.popleft()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            if count < len(room):
                self._empty.appendleft(room[count:])

"""Values that a function returns or raises in the ranks, as received from the launcher."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Literal

from mcjax_launch.features.function.messages import MAIN, Returned, unpickle
from mcjax_launch.wire import messages
from mcjax_launch.wire.frames import Decoder, Raw


class RankValues:
    """Collector of ranks' return values; each part of a pickle is copied only once."""

    def __init__(self) -> None:
        self._decoder = Decoder(messages.ToLauncher)
        self._of_ranks: dict[int, _Parts] = {}

    def feed(self, data: memoryview) -> bool:
        """Process frames from the launcher; return True to get more."""
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
        """Return whether a rank's value, or its exception, has been received completely."""
        returned = self._of_ranks.get(rank)
        return returned is not None and returned.kind == kind and returned.complete

    def pop(self, rank: int) -> Any:
        """Remove and unpickle a rank's return value or exception, and return it.

        Raises:
            Exception: any error of unpickling, as for a class that cannot be imported here.

        """
        sys.modules.setdefault(MAIN, sys.modules["__main__"])  # as multiprocessing does
        return unpickle(self._of_ranks.pop(rank).parts)


class _Parts:
    """Parts of a pickle, each in separate memory."""

    def __init__(self, kind: str, sizes: tuple[int, ...]) -> None:
        self.kind = kind
        self.parts = [bytearray(size) for size in sizes]
        self._empty = deque(memoryview(part) for part in self.parts if part)

    @property
    def complete(self) -> bool:
        return not self._empty

    def fill(self, data: bytes) -> None:
        """Copy the next bytes into the parts that are not yet complete."""
        rest = memoryview(data)
        while rest and self._empty:
            room = self._empty.popleft()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            if count < len(room):
                self._empty.appendleft(room[count:])

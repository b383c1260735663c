"""Values that calls return or raise in the ranks, as received from the launcher."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.messages import (
    MAIN,
    NotSubmitted,
    Returned,
    Waiting,
    unpickle,
)
from mcjax_launch.wire import messages
from mcjax_launch.wire.frames import Decoder, Raw

LauncherAnswer = Waiting | NotSubmitted


class Repr(str):
    """Text of a value that stays in its rank, such as an array over several processes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Answer:
    """Value or exception of a rank: parts of a pickle, each in separate memory.

    Args:
        told: the rank's report.

    """

    def __init__(self, told: Returned) -> None:
        self.told = told
        self._parts = [bytearray(size) for size in told.sizes]
        self._empty = deque(memoryview(part) for part in self._parts if part)

    @property
    def is_complete(self) -> bool:
        """True if all parts have been received."""
        return not self._empty

    @property
    def can_be_unpickled(self) -> bool:
        """False for an exception that the rank could not pickle."""
        return bool(self._parts)

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

    def unpickle(self) -> Any:
        """Return the rank's return value or exception, which uses the memory of the parts.

        Raises:
            Exception: any error of unpickling, as for a class that cannot be imported here.

        """
        sys.modules.setdefault(MAIN, sys.modules["__main__"])  # as multiprocessing does
        value = unpickle(self._parts)
        return Repr(value) if self.told.kind == "repr" else value


def unpickle_value(rank: int, answer: Answer, name: str) -> Any:
    """Return the value of a call in a rank.

    Args:
        rank: the rank.
        answer: its answer.
        name: name of the call.

    Raises:
        LaunchError: it cannot be unpickled here, as for a class that cannot be imported.

    """
    try:
        return answer.unpickle()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        told = f"the value that {name} returned in rank {rank} cannot be unpickled here: {why}"
        raise LaunchError(told) from error


class RankValues:
    """Collector of ranks' answers to the latest call; each part of a pickle is copied only once.

    Attributes:
        on_answer: called with a rank whose answer is complete.
        on_answer_of_launcher: called with the launcher's answer to a question.

    """

    def __init__(self) -> None:
        self.on_answer: Callable[[int], object] = lambda rank: None
        self.on_answer_of_launcher: Callable[[LauncherAnswer], object] = lambda answer: None
        self._decoder = Decoder(messages.ToLauncher)
        self._of_ranks: dict[int, Answer] = {}

    def feed(self, data: memoryview) -> bool:
        """Process frames from the launcher; return True to get more."""
        for frame in self._decoder.feed(data):
            match frame:
                case messages.Started(rank):
                    self._of_ranks.pop(rank, None)  # that of an earlier process
                case Waiting() | NotSubmitted():
                    self.on_answer_of_launcher(frame)
                case messages.FromHook(rank, Returned() as told):
                    self._of_ranks[rank] = Answer(told)
                    self._report(rank)
                case Raw(number=rank, payload=payload) if rank in self._of_ranks:
                    self._of_ranks[rank].fill(payload)
                    self._report(rank)
        return True

    def _report(self, rank: int) -> None:
        if self._of_ranks[rank].is_complete:
            self.on_answer(rank)

    def has(self, kind: Literal["value", "raised"], rank: int) -> bool:
        """Return whether a rank's value, or its exception, has been received completely."""
        answer = self._of_ranks.get(rank)
        return answer is not None and answer.told.kind == kind and answer.is_complete

    def pop(self, rank: int) -> Answer:
        """Remove and return a rank's answer."""
        return self._of_ranks.pop(rank)

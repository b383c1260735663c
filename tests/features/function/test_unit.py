"""What functions have returned, from a rank's file to the program that wants it."""

import os
import pickle
from collections.abc import Generator, Iterator
from itertools import chain, islice
from pathlib import Path

import parts
import pytest

from mcjax_launch.api.values import RankValues
from mcjax_launch.features.function import agent as agent
from mcjax_launch.features.function.messages import (
    Returned,
    get_result_path,
    list_sizes,
    pickle_in_parts,
)
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire import frames
from mcjax_launch.wire.messages import FromHook, Started

LARGE = 1 << 18


class Way:
    """In place of an uplink: what it was given, as the launcher and its client get it."""

    def __init__(self) -> None:
        self.deferred: list[Generator[bytes, None, None]] = []

    def send_later(self, pieces: Generator[bytes, None, None]) -> None:
        self.deferred.append(pieces)

    def taken(self, most: int = 1000) -> bytes:
        return b"".join(chain.from_iterable(islice(pieces, most) for pieces in self.deferred))


class Host:
    """The agent's side, in a folder with what ranks have written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.way = Way()
        self.returns = agent.ReturnedFiles(parts.agent(folder, Loop(), self.way))

    def add(self, rank: int, value: object, kind: str = "value") -> None:
        parts = pickle_in_parts(value, pickle.dumps)
        Path(get_result_path(str(self.folder), str(rank))).write_bytes(b"".join(parts))
        returned = Returned(kind, list_sizes(parts))
        self.returns.on_hook_message(None, FromHook(rank, returned))  # type: ignore[arg-type]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    for pieces in made.way.deferred:
        pieces.close()


def buffer(byte: int) -> object:
    return pickle.PickleBuffer(bytearray([byte]) * LARGE)


def test_large_values_of_several_ranks_are_sent_back(host: Host) -> None:
    host.add(0, {"small": 1, "large": buffer(1), "other": buffer(2)})
    host.add(3, buffer(3))
    assert os.listdir(host.folder) == []  # nobody has to remove anything
    returns = RankValues()
    returns.feed(memoryview(host.way.taken()))
    assert [returns.has("value", rank) for rank in (0, 1, 3)] == [True, False, True]
    found = returns.pop(0)
    assert found["small"] == 1
    assert (found["large"], found["other"]) == (b"\1" * LARGE, b"\2" * LARGE)
    assert returns.pop(3) == b"\3" * LARGE
    assert not returns.has("value", 0)


def test_part_of_a_value_does_not_count(host: Host) -> None:
    host.add(0, buffer(1))
    returns = RankValues()
    returns.feed(memoryview(host.way.taken(most=3)))
    assert not returns.has("value", 0)


def test_value_of_an_earlier_attempt_is_forgotten(host: Host) -> None:
    host.add(0, 7)
    returns = RankValues()
    returns.feed(memoryview(host.way.taken()))
    returns.feed(memoryview(frames.encode_message(Started(1, 100))))
    assert returns.has("value", 0)
    returns.feed(memoryview(frames.encode_message(Started(0, 101))))
    assert not returns.has("value", 0)


def test_ending_job_sends_back_only_exceptions(host: Host) -> None:
    host.add(0, buffer(1))
    host.add(1, KeyError("no such thing"), "raised")
    host.returns.on_stop()
    sent = frames.Decoder().feed(host.way.taken())
    contents = [frame.number for frame in sent if isinstance(frame, frames.Raw)]
    assert contents == [1]


def test_no_value_is_sent_for_a_rank_that_wrote_none(host: Host) -> None:
    returned = Returned("value", (1,))
    host.returns.on_hook_message(None, FromHook(0, returned))  # type: ignore[arg-type]
    assert host.way.deferred == []

"""Reading of a ring of programs while a rank writes it."""

import copy
import random
import zlib
from binascii import a2b_base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.features.recorder.agent import RecordReports, SequenceReader
from mcjax_launch.features.recorder.hook.sequences import Sequence, SequenceFile
from mcjax_launch.features.recorder.messages import (
    ENTRIES,
    FILE_BYTES,
    HAS_NO_ORDER,
    MOST_SEQUENCES,
    Area,
    AskText,
    ProgramText,
    Recorded,
    RecordedSequence,
    Recording,
)
from mcjax_launch.wire.messages import FromHook


def make_pair() -> tuple[Sequence, SequenceReader]:
    area = Area(memoryview(bytearray(FILE_BYTES)).cast("Q"), 1)
    return Sequence(area), SequenceReader(area)


def read(reader: SequenceReader) -> tuple[int, list[int], int] | None:
    """What is new: number of the first entry, the entries, and the program begun."""
    found = reader.read()
    return found and (found[0], list(found[1]), found[2])


def record(sequence: Sequence, *programs: int) -> None:
    for program in programs:
        sequence.record(program)


def test_only_new_programs_are_read() -> None:
    sequence, reader = make_pair()
    assert read(reader) is None
    record(sequence, 5, 6)
    assert read(reader) == (1, [5, 6], 0)
    assert read(reader) is None
    record(sequence, 5)
    assert read(reader) == (3, [5], 0)


def test_program_that_is_about_to_be_launched_is_told() -> None:
    sequence, reader = make_pair()
    sequence.begin(7)
    assert read(reader) == (1, [], 7)
    assert read(reader) is None
    record(sequence, 7)
    assert read(reader) == (1, [7], 0)
    sequence.begin(8)
    assert read(reader) == (2, [], 8)
    sequence.take_back()
    assert read(reader) == (2, [], 0)
    sequence.begin(9)  # fails in other processes' hands, and the rank goes on
    record(sequence, 5)
    assert read(reader) == (2, [5], 0)


def test_overwritten_programs_are_left_out() -> None:
    sequence, reader = make_pair()
    record(sequence, 5)
    reader.read()
    record(sequence, *[6] * (ENTRIES + 9))
    found = read(reader)
    assert found is not None
    first, programs, _ = found
    assert first > 2
    assert first + len(programs) - 1 == sequence.count
    assert len(programs) >= ENTRIES // 2
    assert set(programs) == {6}
    record(sequence, 7)
    assert read(reader) == (sequence.count, [7], 0)


class Suspended:
    """Ring of a reader that is suspended while it reads, and the rank runs other programs."""

    def __init__(self, sequence: Sequence, programs: int) -> None:
        self._sequence = sequence
        self._programs = programs
        self._reads = 0

    def __getitem__(self, at: slice) -> memoryview:
        self._reads += 1
        if self._reads == 1:
            record(self._sequence, *[6] * self._programs)
        return self._sequence.ring[at]


@pytest.mark.parametrize("programs", [ENTRIES // 2, ENTRIES, 3 * ENTRIES + 11])
def test_programs_overwritten_while_they_are_read_are_left_out(programs: int) -> None:
    sequence, reader = make_pair()
    ran = [5] * 300
    record(sequence, *ran)
    reader.area.ring = Suspended(sequence, programs)  # type: ignore[assignment]
    seen = list[int]()
    while (found := read(reader)) is not None:
        first, new, _ = found
        seen[first - 1 :] = [0] * (first - 1 - len(seen)) + new
    ran += [6] * programs
    assert len(seen) == len(ran)
    assert {(own, told) for own, told in zip(ran, seen, strict=True) if own != told} <= {
        (5, 0),
        (6, 0),
    }
    assert seen[-ENTRIES // 2 :] == ran[-ENTRIES // 2 :]


def test_no_program_is_told_twice_because_it_is_overwritten() -> None:
    sequence, reader = make_pair()
    record(sequence, *[5] * 100)
    assert read(reader) == (1, [5] * 100, 0)
    record(sequence, *[6] * (ENTRIES - 300))
    for _ in range(400):
        record(sequence, 6)
        later = copy.copy(reader)
        found = read(later)
        assert found is not None
        assert found[0] > 100, sequence.count


def test_lost_order_is_told_without_a_new_program() -> None:
    sequence, reader = make_pair()
    record(sequence, 5)
    reader.read()
    reader.area.head[HAS_NO_ORDER] = 1
    assert read(reader) == (2, [], 0)
    assert read(reader) is None


@pytest.mark.parametrize("seed", range(5))
def test_reader_follows_around_the_ring(seed: int) -> None:
    chance, (sequence, reader) = random.Random(seed), make_pair()
    ran: list[int] = []
    seen: list[int] = []
    for _ in range(3 * ENTRIES):
        ran.append(chance.randrange(1, 1 << 30))
        sequence.record(ran[-1])
        assert sequence.count == len(ran)
        if chance.random() < 0.01 and (found := read(reader)) is not None:
            assert found[0] == len(seen) + 1
            seen += found[1]
            assert seen == ran


class Clock:
    """Agent of a rank that runs programs at a rate, and the times of its reports."""

    def __init__(self, tmp_path: Path, per_s: int) -> None:
        self._per_s = per_s
        self.sent = list[Recorded]()
        link = SimpleNamespace(send=self.sent.append)
        agent = SimpleNamespace(timers=[], link=link, folder=str(tmp_path))
        self._reports = RecordReports(agent)
        file = SequenceFile(str(tmp_path / "programs"), SimpleNamespace(send=lambda _: None))  # type: ignore[arg-type]
        hook = SimpleNamespace(rank=0, pid=1)
        self._reports.on_hook_message(hook, FromHook(0, Recording(file.path)))  # type: ignore[arg-type]
        self._sequence = file.get_sequence(("cpu", None, None))
        known = RecordedSequence(self._sequence.key, "cpu", None, None)
        self._reports.on_hook_message(hook, FromHook(0, known))  # type: ignore[arg-type]
        self.sent.clear()

    def run(self, seconds: float) -> int:
        """Return how many programs were reported."""
        assert self._reports.deadline is not None
        now = self._reports.deadline
        for _ in range(round(seconds * 50)):
            record(self._sequence, *[1] * (self._per_s // 50))
            now += 1 / 50
            self._reports.expire(now)
        found = [entries for message in self.sent for entries in message.sequences]
        return sum(len(zlib.decompress(a2b_base64(entries.programs))) // 4 for entries in found)


def test_fast_programs_are_reported_before_they_are_overwritten(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    slow, fast = Clock(tmp_path / "slow", 1000), Clock(tmp_path, 25_000)
    assert slow.run(9) >= 7900
    assert len(slow.sent) <= 20
    ran = 9 * 25_000
    assert fast.run(9) >= ran - 2 * ENTRIES  # some of the first second
    assert len(fast.sent) <= 9 * 10


def test_each_mesh_has_a_sequence_as_long_as_there_is_room(tmp_path: Path) -> None:
    sent: list[Any] = []
    link: Any = SimpleNamespace(send=sent.append)
    file = SequenceFile(str(tmp_path / "ring"), link)
    meshes = [("cpu", (0, 1), (0, number)) for number in range(MOST_SEQUENCES + 1)]
    sequences = [file.get_sequence(mesh) for mesh in meshes]
    assert [file.get_sequence(mesh) for mesh in meshes] == sequences
    assert [bool(each.key) for each in sequences] == [True] * MOST_SEQUENCES + [False]
    assert [each.is_recorded for each in sent] == [True] * MOST_SEQUENCES + [False]
    for sequence in sequences:
        sequence.record(5)


def test_text_of_a_program_is_told_by_the_host_that_has_its_rank(tmp_path: Path) -> None:
    sent: list[Any] = []
    agent: Any = SimpleNamespace(
        timers=[], link=SimpleNamespace(send=sent.append), folder=str(tmp_path)
    )
    reports = RecordReports(agent)
    for process in range(2):
        path = str(tmp_path / f"programs.{process}")
        SequenceFile(path, SimpleNamespace(send=lambda _: None))  # type: ignore[arg-type]
        hook: Any = SimpleNamespace(rank=3, pid=10 + process)
        reports.on_hook_message(hook, FromHook(3, Recording(path)))
    Path(f"{path}.5").write_bytes(b"text")
    for rank, identity in ((3, 5), (3, 6), (0, 5)):
        reports.on_message(AskText(rank, identity))
    [told] = sent
    assert isinstance(told, ProgramText)
    assert (told.rank, told.identity, a2b_base64(told.text)) == (3, 5, b"text")


def test_sequence_is_read_once_the_launcher_knows_it(tmp_path: Path) -> None:
    """Else its first programs would be lost."""
    sent: list[Any] = []
    agent: Any = SimpleNamespace(
        timers=[], link=SimpleNamespace(send=sent.append), folder=str(tmp_path), pids={10: 0}
    )
    reports, hook = RecordReports(agent), SimpleNamespace(rank=0, pid=10)
    said: list[Any] = []
    file = SequenceFile(str(tmp_path / "programs"), SimpleNamespace(send=said.append))  # type: ignore[arg-type]
    reports.on_hook_message(hook, FromHook(0, Recording(file.path)))  # type: ignore[arg-type]
    record(file.get_sequence(("cpu", None, None)), 5)
    reports.on_leaving(0)
    assert sent == []
    reports.on_hook_message(hook, FromHook(0, said[0]))  # type: ignore[arg-type]
    reports.on_leaving(0)
    [_, told] = sent
    assert [entries.first for entries in told.sequences] == [1]

"""Reading of a ring of programs while a rank writes it."""

from mcjax_launch.features.recorder.agent import SequenceReader
from mcjax_launch.features.recorder.hook.sequences import Sequence
from mcjax_launch.features.recorder.messages import ENTRIES, NUMBER_BITS


def make_pair() -> tuple[Sequence, SequenceReader]:
    ring = memoryview(bytearray(8 * ENTRIES)).cast("Q")
    return Sequence(0, ring), SequenceReader(ring)


def record(sequence: Sequence, *programs: int) -> None:
    for program in programs:
        sequence.record(program << NUMBER_BITS)


def test_only_new_programs_are_read() -> None:
    sequence, reader = make_pair()
    assert reader.read() is None
    record(sequence, 5, 6)
    assert reader.read() == (1, [5, 6])
    assert reader.read() is None
    record(sequence, 5)
    assert reader.read() == (3, [5])


def test_withdrawn_program_is_told() -> None:
    sequence, reader = make_pair()
    record(sequence, 5, 6)
    reader.read()
    sequence.withdraw()
    assert reader.read() == (2, [])
    record(sequence, 7)
    assert reader.read() == (2, [7])
    sequence.withdraw()
    record(sequence, 8, 9)
    assert reader.read() == (2, [8, 9])


def test_overwritten_programs_are_left_out() -> None:
    sequence, reader = make_pair()
    record(sequence, 5)
    reader.read()
    record(sequence, *[6] * (ENTRIES + 9))
    found = reader.read()
    assert found is not None
    first, programs = found
    assert first > 2
    assert first + len(programs) - 1 == sequence.count
    assert set(programs) == {6}
    record(sequence, 7)
    assert reader.read() == (sequence.count, [7])

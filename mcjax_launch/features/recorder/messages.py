"""Messages on recorded programs, and the layout of the file that a rank and its agent share.

A rank writes each call of a program that spans processes into a ring, from which the agent reads,
also while the rank's Python is blocked. There is a ring for each *sequence*: the programs that one
thread runs over one mesh, numbered from 1. An entry is a program's identity, shifted left by
NUMBER_BITS, plus its number; the last entry may be withdrawn or replaced.
"""

from __future__ import annotations

from ...wire.codec import Nested
from ...wire.hook_messages import HookMessage
from ...wire.messages import ToLauncher

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Sequences in a file, and entries in each ring.
MOST_SEQUENCES = 16
ENTRIES = 1 << 14
NUMBER_BITS = 40
#: Words (8 bytes) for each sequence before the rings: its key, 0 if unused; 1 if it has no order.
WORDS = 2
_HEADER = 512
assert MOST_SEQUENCES * WORDS <= _HEADER
FILE_BYTES = 8 * (_HEADER + MOST_SEQUENCES * ENTRIES)


def get_ring(words: memoryview, index: int) -> memoryview:
    """Return the ring of a sequence in the file, given as words."""
    begin = _HEADER + index * ENTRIES
    return words[begin : begin + ENTRIES]


class Recording(HookMessage):
    """Notice that a process records its programs in the file at `path`."""

    path: str


class NotRecording(HookMessage):
    """Notice that a process cannot record its programs, and why."""

    reason: str


class RecordedSequence(HookMessage):
    """Notice of a new sequence: its mesh, and its thread's name, "" for the main thread.

    `processes` and `devices` are numbers as the backend of `platform` counts; None for all.
    """

    key: int
    platform: str
    processes: tuple[int, ...] | None
    devices: tuple[int, ...] | None
    thread: str = ""


class RecordedProgram(HookMessage):
    """Notice of a program's name, and of the user's line that ran it first.

    `identity` is equal in all processes for calls of the same function with a first argument of the
    same shape. `fingerprint` is that of the compiled program; see `Program`.
    """

    identity: int
    name: str
    where: str
    fingerprint: str


class Entries(Nested):
    """New entries of a sequence.

    Args:
        rank: the rank.
        process: number of the rank's process among those that have recorded, from 0.
        key: the sequence's key.
        first: number of the first entry; entries from this number on that were sent are withdrawn.
        programs: identities of the programs, 4 bytes each, compressed, in base64.
        has_order: False if several threads write the sequence, so that its order says nothing.

    """

    rank: int
    process: int
    key: int
    first: int
    programs: str
    has_order: bool = True


class Recorded(ToLauncher):
    """Report of what the ranks of a host have run since the last report."""

    sequences: tuple[Entries, ...]

    @property
    def about(self) -> Iterable[int]:
        """Ranks that the message is about."""
        return {entries.rank for entries in self.sequences}

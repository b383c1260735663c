"""Messages on recorded programs, and the layout of the file that a rank and its agent share.

A rank writes each launch of a program in which processes exchange data into a ring, from which the
agent reads, also while the rank's Python is blocked. There is a ring for each mesh: its *sequence*,
numbered from 1. An entry is a program's identity. JAX's C++ code tells of a launch afterwards; what
JAX's Python code is about to launch is written beside the ring before, with its number.
"""

from __future__ import annotations

from ...wire.codec import Nested
from ...wire.hook_messages import HookMessage
from ...wire.messages import ToAgent, ToLauncher

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Sequences in a file, and bits of a program's identity.
MOST_SEQUENCES = 16
IDENTITY_BITS = 30  # Python is fastest with such numbers
#: Entries of 4 bytes in each ring; the entry with number n is at (n - 1) & LAST.
ENTRIES = 1 << 14
LAST = ENTRIES - 1
# Words of 8 bytes before a ring, of which four are used, and with the ring.
_HEAD = 8
_AREA = _HEAD + ENTRIES // 2
FILE_BYTES = 8 * MOST_SEQUENCES * _AREA
#: Indices of words in an area's head: the sequence's key, 0 if the area is unused; 1 if the order
#: of programs says nothing; the number of entries; the program that is about to be launched, and
#: above 32 bits its number in the sequence.
KEY, HAS_NO_ORDER, COUNT, BEGUN = range(4)


class Area:
    """Part of the file that belongs to a sequence.

    Args:
        words: the file's content.
        index: number of the sequence in the file.

    Attributes:
        head: words; see `KEY`.
        ring: the latest entries.

    """

    def __init__(self, words: memoryview, index: int) -> None:
        own = words[_AREA * index : _AREA * (index + 1)]
        self.head = own[:_HEAD]
        self.ring = own[_HEAD:].cast("B").cast("I")


class Recording(HookMessage):
    """Notice that a process records its programs in the file at `path`."""

    path: str


class NotRecording(HookMessage):
    """Notice that a process cannot record its programs, and why."""

    reason: str


class RecordedSequence(HookMessage):
    """Notice of a new sequence, and its mesh.

    `processes` and `devices` are numbers as the backend of `platform` counts; None for all.
    `is_recorded` is False if the file has no room for it.
    """

    key: int
    platform: str
    processes: tuple[int, ...] | None
    devices: tuple[int, ...] | None
    is_recorded: bool = True


class ReplicatedPart(Nested):
    """Array, or part of an array, that several processes hold.

    Args:
        index: number of the array among a program's arguments or outputs.
        name: path of the array, such as `params['w']`; "" if there is none.
        part: the part, such as `[0:4, :]`; "" for the whole array.

    """

    index: int
    name: str
    part: str


class ReplicatedParts(HookMessage):
    """Notice of the replicated arguments, or outputs, of which a process will report digests.

    `processor` names what computes in this process: equal ones compute equal bits. `is_mapped` is
    True if the program has a `shard_map`, whose function runs on each device by itself.
    """

    identity: int
    of_arguments: bool
    parts: tuple[ReplicatedPart, ...]
    processor: str
    is_mapped: bool = False


class NotComparing(HookMessage):
    """Notice that a process cannot compute digests of a program's arrays, and why."""

    identity: int
    reason: str


class Digests(Nested):
    """Digests of the replicated arguments, or outputs, of a program.

    Args:
        key: the key of the program's sequence.
        number: number of the program in the sequence.
        identity: identity of the program.
        of_arguments: True for its arguments, False for its outputs.
        values: digests of the parts in the latest `ReplicatedParts`, 4 bytes each, in base64.

    """

    key: int
    number: int
    identity: int
    of_arguments: bool
    values: str


class ComputedDigests(HookMessage):
    """Report of digests by the process that holds the arrays."""

    digests: Digests


class RankDigests(ToLauncher):
    """Report of digests; `process` is the number of the rank's process, as in `Entries`."""

    rank: int
    process: int
    digests: Digests

    @property
    def about(self) -> Iterable[int]:
        """The rank that the message is about."""
        return {self.rank}


class Entries(Nested):
    """New entries of a sequence.

    Args:
        rank: the rank.
        process: number of the rank's process among those that have recorded, from 0.
        key: the sequence's key.
        first: number of the first entry.
        programs: identities of the programs, 4 bytes each, compressed, in base64.
        begun: identity of the program that is about to be launched next; 0 if unknown.
        has_order: False if threads write the sequence at the same time: its order says nothing.

    """

    rank: int
    process: int
    key: int
    first: int
    programs: str
    begun: int = 0
    has_order: bool = True


class Recorded(ToLauncher):
    """Report of what the ranks of a host have run since the last report."""

    sequences: tuple[Entries, ...]

    @property
    def about(self) -> Iterable[int]:
        """Ranks that the message is about."""
        return {entries.rank for entries in self.sequences}


class AskText(ToAgent):
    """Request for the text of a program that a rank has run, answered by ProgramText."""

    rank: int
    identity: int


class ProgramText(ToLauncher):
    """Answer to AskText, if the text is kept: the program's StableHLO, compressed, in base64."""

    rank: int
    identity: int
    text: str

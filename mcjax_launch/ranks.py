"""Whole numbers and sets of ranks as text, read and written; what several have alike; pure."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: The most ranks that a job may have: beyond this it is a slip of the finger.
MOST_RANKS = 65_536

# Characters of a set of ranks, in an error; of a longer one only what is wrong.
_MOST_SHOWN = 40
_RANGE = r"\s*([0-9]+)(?:-([0-9]+))?\s*"


def whole_number(text: str, low: int, high: int) -> int:
    """The number that plain digits stand for.

    Args:
        text: from a user: of any length, and in any script.
        low: the least that is allowed, 0 or more.
        high: the most.

    Raises:
        ValueError: it is none, or out of bounds; says what was expected, not what was found.

    """
    digits = text.lstrip("0") or text[-1:]
    if text.isascii() and text.isdigit():
        # Python refuses to read numbers of thousands of digits.
        number = int(digits) if len(digits) <= len(str(high)) else high + 1
        if number > high:
            raise ValueError(f"more than {high}")
        if number >= low:
            return number
    raise ValueError(f"not a whole number of {low} or more")


def ranges(ranks: Iterable[int]) -> str:
    """Ranks as `0-2,5`; what `parse_ranges` reads."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def parse_ranges(text: str) -> frozenset[int]:
    """The ranks that `0` or `0-2,5` stands for.

    Raises:
        ValueError: it is not written like that, or names a rank that no job has.

    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(_RANGE, part)
        low, high = (_rank(end) for end in (match[1], match[2] or match[1])) if match else (1, 0)
        if high < low:
            wrong = text if len(text) <= _MOST_SHOWN else part
            raise ValueError(f"{wrong!r} is not a set of ranks: write 0 or 0,4-7")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


def _rank(text: str) -> int:
    try:
        return whole_number(text, 0, MOST_RANKS - 1)
    except ValueError as error:
        raise ValueError(f"rank {text} is {error}") from None


def these_ranks(ranks: Iterable[int]) -> str:
    """Ranks as `rank 3` or `ranks 0-2,5`."""
    ranks = set(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"


def slices_text(slices: Sequence[int]) -> str:
    """Slices as `2 slices (ranks 0-3; ranks 4-7)`.

    Args:
        slices: the slice of each rank.

    """
    ranks = grouped((index, rank) for rank, index in enumerate(slices))
    parts = [these_ranks(ranks[index]) for index in sorted(ranks)]
    return f"{counted(len(ranks), 'slice')} ({'; '.join(parts)})"


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """What goes with each of these keys, such as the ranks that did the same; in their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def all_of(count: int) -> str:
    """Return the word for all of so many, as `both` or `all 3`."""
    return "both" if count == 2 else f"all {count}"


def all_ranks(count: int) -> str:
    """All of so many, as `both ranks` or `all 3 ranks`."""
    return f"{all_of(count)} ranks"


def have(ranks: Iterable[int]) -> str:
    """The verb after `these_ranks`: `has` or `have`."""
    return "have" if len(set(ranks)) > 1 else "has"


def counted(number: int, noun: str) -> str:
    """A number of things, as `1 rank` or `2 ranks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

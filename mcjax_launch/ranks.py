"""Format and parse whole numbers and sets of ranks; group values by key; pure."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: The most ranks that a job may have: a larger number is a typing error.
MOST_RANKS = 65_536

# An error quotes all of a set of ranks up to this many characters, else only the wrong part.
_MOST_SHOWN = 40
_RANGE = r"\s*([0-9]+)(?:-([0-9]+))?\s*"


def parse_whole_number(text: str, low: int, high: int) -> int:
    """Parse plain decimal digits.

    Args:
        text: from a user: of any length, and in any script.
        low: the smallest number allowed, 0 or more.
        high: the largest number allowed.

    Raises:
        ValueError: the text is not a number, or the number is out of bounds. The message says what
            was expected, not what was found.

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


def format_ranges(ranks: Iterable[int]) -> str:
    """Return ranks as text that `parse_ranges` reads, such as `0-2,5`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def parse_ranges(text: str) -> frozenset[int]:
    """Return the ranks that a text such as `0` or `0-2,5` stands for.

    Raises:
        ValueError: the text is not written like that, or names a rank that no job has.

    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(_RANGE, part)
        low, high = (
            (_parse_rank(end) for end in (match[1], match[2] or match[1])) if match else (1, 0)
        )
        if high < low:
            wrong = text if len(text) <= _MOST_SHOWN else part
            raise ValueError(f"{wrong!r} is not a set of ranks: write 0 or 0,4-7")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


def _parse_rank(text: str) -> int:
    try:
        return parse_whole_number(text, 0, MOST_RANKS - 1)
    except ValueError as error:
        raise ValueError(f"rank {text} is {error}") from None


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as `rank 3` or `ranks 0-2,5`."""
    ranks = set(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranges(ranks)}"


def format_slices(slices: Sequence[int]) -> str:
    """Return slices as `2 slices (ranks 0-3; ranks 4-7)`.

    Args:
        slices: the slice of each rank.

    """
    ranks = group_by_key((index, rank) for rank, index in enumerate(slices))
    parts = [format_ranks(ranks[index]) for index in sorted(ranks)]
    return f"{format_count(len(ranks), 'slice')} ({'; '.join(parts)})"


def group_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group the values of (key, value) pairs by key; keys and values keep their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def format_all(count: int) -> str:
    """Return `both` for 2 and `all N` for any other count."""
    return "both" if count == 2 else f"all {count}"


def format_all_ranks(count: int) -> str:
    """Return `both ranks` for 2 and `all N ranks` for any other count."""
    return f"{format_all(count)} ranks"


def inflect_have(ranks: Iterable[int]) -> str:
    """Return the verb that follows `format_ranks`: `has` or `have`."""
    return "have" if len(set(ranks)) > 1 else "has"


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, as `1 rank` or `2 ranks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

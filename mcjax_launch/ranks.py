"""Ranks in words; pure."""

from collections.abc import Iterable


def ranges(ranks: Iterable[int]) -> str:
    """Numbers as `0-2,5`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def these_ranks(ranks: Iterable[int]) -> str:
    """Ranks as `rank 3` or `ranks 0-2,5`."""
    found = set(ranks)
    return f"rank{'s' if len(found) > 1 else ''} {ranges(found)}"


def have(ranks: Iterable[int]) -> str:
    """The verb after `these_ranks`: `has` or `have`."""
    return "have" if len(set(ranks)) > 1 else "has"

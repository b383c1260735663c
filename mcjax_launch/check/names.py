"""The names of many hosts in few words; pure."""

import re
from collections.abc import Iterable

from mcjax_launch.ranks import ranges

_MOST = 8


def folded(names: Iterable[str]) -> str:
    """Names as a hosts file may write them: `node[1-3,5],gpu[08-10],other`."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for name in names:
        found = re.fullmatch(r"(?s)(.*?[^0-9.:])([0-9]{1,9})((?:\D.*)?)", name)
        if found is None:
            groups.setdefault((name, -1, ""), [])
            continue
        digits = found[2]
        width = len(digits) if digits[0] == "0" else 0
        groups.setdefault((found[1], width, found[3]), []).append(int(digits))
    return ",".join(
        _folded(before, width, behind, numbers)
        for (before, width, behind), numbers in _joined(groups).items()
    )


def _joined(
    groups: dict[tuple[str, int, str], list[int]],
) -> dict[tuple[str, int, str], list[int]]:
    """`n08`, `n09` and `n10` are of one width."""
    joined: dict[tuple[str, int, str], list[int]] = {}
    for (before, width, behind), numbers in groups.items():
        for number in numbers or [0]:
            padded = next(
                (
                    other
                    for begin, other, end in groups
                    if (begin, end) == (before, behind) and other == len(str(number)) and other > 0
                ),
                width,
            )
            joined.setdefault((before, padded, behind), []).append(number)
    return joined


def _folded(before: str, width: int, behind: str, numbers: list[int]) -> str:
    if width < 0:
        return before
    if len(numbers) == 1:
        return f"{before}{numbers[0]:0{width or 1}}{behind}"
    parts = ranges(numbers).split(",")
    padded = ["-".join(f"{int(end):0{width or 1}}" for end in part.split("-")) for part in parts]
    return f"{before}[{','.join(padded)}]{behind}"


def some(names: Iterable[str]) -> str:
    """The same, but of very many groups only the first: `a,b,c and 5 more`."""
    parts = re.findall(r"(?:[^,\[]|\[[^\[\]]*\])+", folded(names))
    more = len(parts) - _MOST
    return ",".join(parts) if more <= 1 else f"{','.join(parts[:_MOST])} and {more} more"

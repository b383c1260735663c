"""An exception that the text of another one quotes, with its stack; pure.

JAX puts what a callback raised into the text of an exception of its own, and Equinox the stack
inside of its jit: the first line of such a text says nothing.
"""

from __future__ import annotations

from .value import Value

_FRAME = '  File "'


class Quoted(Value):
    """An exception in the text of another.

    Args:
        line: that says what happened, as `ValueError: not finite`.
        frames: file, line's number and function of each call, outermost first.

    """

    line: str
    frames: tuple[tuple[str, int, str], ...]


def embedded(text: str) -> Quoted | None:
    """The exception that the text of another one quotes; the last one of several, None for none."""
    lines = text.splitlines()
    begins = (
        at
        for at in range(len(lines) - 1, 0, -1)
        if lines[at].startswith(_FRAME) and lines[at - 1].rstrip().endswith(":")
    )
    begin = next((at for at in begins if not lines[at - 1].startswith(" ")), None)
    if begin is None:
        return None
    rest = lines[begin:]
    end = next((at for at, line in enumerate(rest) if line.strip() and line[0] != " "), len(rest))
    said = with_words(rest[end:])
    found = (_frame(line) for line in rest[:end] if line.startswith(_FRAME))
    return Quoted(said, tuple(frame for frame in found if frame)) if said else None


def with_words(lines: list[str]) -> str:
    """The first line of an exception's text, with the next one if it is but a name and a colon."""
    if not lines:
        return ""
    first = lines[0].rstrip()
    if not first.endswith(":"):
        return first
    more = next((line.strip() for line in lines[1:] if line.strip()), "")
    return f"{first} {more}" if more else first[:-1]


def _frame(line: str) -> tuple[str, int, str] | None:
    file, _, rest = line[len(_FRAME) :].partition('", line ')
    number, _, name = rest.partition(", in ")
    return (file, int(number), name) if number.isdecimal() and len(number) < 10 else None

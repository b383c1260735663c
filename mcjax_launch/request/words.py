"""Options as words of a command line; pure."""

from collections.abc import Sequence
from typing import Any

from mcjax_launch.ranks import ranges


def words(name: str, value: Any, *, repeats: bool) -> Sequence[str]:
    """An option as it would be written on the command line.

    Args:
        name: with its dashes.
        value: as Options has it.
        repeats: the option may be given several times.

    """
    if isinstance(value, bool):
        return (name,) if value else ()
    if repeats:
        return tuple(word for item in value for word in (name, str(item)))
    return name, _word(value)


def _word(value: Any) -> str:
    if value is None:  # a limit that is none
        return "0"
    if isinstance(value, frozenset):
        return ranges(value) or "none"
    if isinstance(value, tuple):
        return ",".join(value)
    # Never 1e+06, which is not a duration.
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

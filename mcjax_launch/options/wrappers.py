"""Commands that ranks run under, such as `strace -f` or `gdb -ex run --args`; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import parse_ranges


class Wrapper(Value):
    """A command that takes the command of a rank as its last arguments.

    Args:
        ranks: that run under it; None for all.
        words: it and its own arguments, with placeholders.

    """

    ranks: frozenset[int] | None
    words: tuple[str, ...]


def parse(text: str) -> Wrapper:
    """The wrapper that `[RANKS:]COMMAND` stands for.

    Raises:
        ValueError: it does not stand for one; says why.

    """
    import shlex

    before, colon, after = text.partition(":")
    ranks, command = None, text
    if colon and before.strip() == "all":
        command = after
    elif colon and before and set(before) <= set("0123456789,- "):
        ranks, command = parse_ranges(before), after
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ValueError(f"{text!r}: {str(error).lower()}") from None
    if not words:
        raise ValueError(f"{text!r} names no command: write 'strace -f' or '0:gdb -ex run --args'")
    if words[0].endswith("gdb") and "--args" not in words and "-args" not in words:
        raise ValueError(f"{text!r}: gdb takes a program with its arguments after --args")
    return Wrapper(ranks, words)


def around(wrappers: Sequence[Wrapper], rank: int) -> list[str]:
    """What stands before the command of a rank: of several wrappers the first one outermost."""
    mine = (one for one in wrappers if one.ranks is None or rank in one.ranks)
    return [word for one in mine for word in one.words]


def commands(wrappers: Sequence[Wrapper], ranks: Collection[int]) -> tuple[str, ...]:
    """The commands to look for on a host with these ranks; without those that a rank completes."""
    used = (one for one in wrappers if one.ranks is None or not one.ranks.isdisjoint(ranks))
    return tuple(dict.fromkeys(one.words[0] for one in used if "{" not in one.words[0]))

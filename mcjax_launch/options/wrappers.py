"""Commands that ranks run under, such as `strace -f` or `gdb -ex run --args`; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mcjax_launch.ranks import parse_ranges
from mcjax_launch.wire.value import Value


class Wrapper(Value):
    """A command of --wrap, to which the command of a rank is appended.

    Args:
        ranks: the ranks that run under the command; None for all.
        words: the command and its own arguments, which may have placeholders.

    """

    ranks: frozenset[int] | None
    words: tuple[str, ...]


def parse(text: str) -> Wrapper:
    """Parse `[RANKS:]COMMAND`.

    Raises:
        ValueError: the text is invalid; with a message for the user.

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


def get_wrapper_words(wrappers: Sequence[Wrapper], rank: int) -> list[str]:
    """Return the words before the command of a rank; the first wrapper's words come first."""
    mine = (wrapper for wrapper in wrappers if wrapper.ranks is None or rank in wrapper.ranks)
    return [word for wrapper in mine for word in wrapper.words]


def list_commands(wrappers: Sequence[Wrapper], ranks: Collection[int]) -> tuple[str, ...]:
    """Return the commands of --wrap that a host with these ranks needs, without placeholders."""
    wanted = set(ranks)
    used = (wrapper for wrapper in wrappers if wrapper.ranks is None or wrapper.ranks & wanted)
    names = (wrapper.words[0] for wrapper in used)
    return tuple(dict.fromkeys(name for name in names if "{" not in name))

"""Words for the launcher's own lines: durations, and foreign text made safe to print; pure."""

from collections.abc import Sequence

_LONGEST_WORD = 256
_LONGEST_LINE = 2048
_MOST_NAMES = 8
# Of a text of any length, such as a traceback, whose message may be pages long.
_FIRST_LINES, _LAST_LINES = 20, 20


def escape_unprintable(text: str) -> str:
    r"""Return text with everything escaped that could act on a terminal.

    An escape character becomes `\x1b`; a byte that is not UTF-8 is escaped in the same way. Tabs
    stay. Use it for text from a host, an ssh client, a file's name or a variable.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _escape(char) for char in text)


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def format_names(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Return names as `a, b`; of more than `most` only the first, as `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def format_rough_duration(seconds: float) -> str:
    """Format a duration for a person, as `40 s` or `3 min`."""
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"


def omit_middle(lines: list[str]) -> list[str]:
    """Replace all but the first 20 and last 20 lines of a long text by a count of omitted lines."""
    omitted = len(lines) - _FIRST_LINES - _LAST_LINES
    if omitted <= 1:
        return lines
    return [*lines[:_FIRST_LINES], f"({omitted} lines omitted)", *lines[-_LAST_LINES:]]


def format_one_line(text: str) -> str:
    """Return text as one printable line of limited length.

    The middle of long words and of a long line is cut: an error says at its start what is wrong,
    and at its end what to do about it.
    """
    words = (_cut(word, _LONGEST_WORD) for word in escape_unprintable(text).split(" "))
    return _cut(" ".join(words), _LONGEST_LINE)


def cut_end(text: str, most: int) -> str:
    """Return text of at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}...{text[-most // 4 :]}"

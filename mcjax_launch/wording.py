"""Words for lines of the launcher's own: times, and text from elsewhere made fit for it; pure."""

from collections.abc import Sequence

_LONGEST_WORD = 256
_LONGEST_LINE = 2048
_MOST_NAMES = 8


def visible(text: str) -> str:
    r"""Text in which nothing acts on a terminal: an escape is shown as `\x1b`, a bad byte as well.

    A host, an ssh client, a file's name or a variable may hold anything. Tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _escape(char) for char in text)


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def some(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Names as `a, b`; of more than `most` only the first, as in `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def lasting(seconds: float) -> str:
    """A time for a person: `40 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"


def one_line(text: str) -> str:
    """Text as one line of bearable length: the middle of long words, and of a long line, is cut.

    What is wrong stands at the start of an error, and what to do about it at the end.
    """
    words = (_cut(word, _LONGEST_WORD) for word in visible(text).split(" "))
    return _cut(" ".join(words), _LONGEST_LINE)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}...{text[-most // 4 :]}"

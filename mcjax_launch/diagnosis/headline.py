"""Headlines: the line of an exception's text that says what happened; pure."""

from mcjax_launch.kernel.wire.hook_messages import Failed, Raised
from mcjax_launch.kernel.wire.source_lines import embedded, with_words

_LONGEST_HEADLINE = 400
_IN_A_CALLBACK = " (in a callback)"


def headline(failure: Failed | Raised) -> str:
    """Return the line of an exception's text that says what happened, with the exception's name.

    Usually that line begins with the exception's name; a SyntaxError's is the last line. If the
    text quotes another exception with its stack, return the quoted exception's line.
    """
    name, lines = failure.exception, failure.summary.splitlines()
    quoted = embedded(failure.summary)
    first = (at for at, line in enumerate(lines) if name in line.partition(":")[0])
    line = with_words(lines[next(first, len(lines)) :]) or name
    if quoted is not None:
        line = quoted.line + (_IN_A_CALLBACK if "callback" in line else "")
    return fitting(line)


def fitting(line: str) -> str:
    """Cut a line after 400 characters and mark the cut with " ..."."""
    return line if len(line) <= _LONGEST_HEADLINE else line[:_LONGEST_HEADLINE] + " ..."

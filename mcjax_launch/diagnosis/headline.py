"""Headlines: the line of an exception's text that says what happened; pure."""

from mcjax_launch.kernel.wire.hook_messages import Failed, Raised
from mcjax_launch.kernel.wire.source_lines import find_quoted_exception, format_first_line

_LONGEST_HEADLINE = 400
_IN_A_CALLBACK = " (in a callback)"


def extract_headline(failure: Failed | Raised) -> str:
    """Return the line of an exception's text that says what happened, with the exception's name.

    Usually that line begins with the exception's name; a SyntaxError's is the last line. If the
    text quotes another exception with its stack, return the quoted exception's line.
    """
    name, lines = failure.exception, failure.summary.splitlines()
    quoted = find_quoted_exception(failure.summary)
    first = (at for at, line in enumerate(lines) if name in line.partition(":")[0])
    line = format_first_line(lines[next(first, len(lines)) :]) or name
    if quoted is not None:
        line = quoted.line + (_IN_A_CALLBACK if "callback" in line else "")
    return shorten_line(line)


def shorten_line(line: str) -> str:
    """Cut a line after 400 characters and mark the cut with " ..."."""
    return line if len(line) <= _LONGEST_HEADLINE else line[:_LONGEST_HEADLINE] + " ..."

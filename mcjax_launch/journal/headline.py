"""Headlines: the line of an exception's text that says what happened; pure."""

import re

from mcjax_launch.wire.hook_messages import Failed, Raised
from mcjax_launch.wire.source_lines import find_quoted_exception, format_first_line

_LONGEST_HEADLINE = 400
_IN_A_CALLBACK = " (in a callback)"
# Ends a line that says only how many errors the next lines describe, as pydantic's.
_COUNTS_ERRORS = r"(?i)\b(?:\d+|multiple|several|some)(?: \w+)? errors?(?: (?:for|in) \S+)?$"


def extract_headline(failure: Failed | Raised) -> str:
    """Return the line of an exception's text that says what happened, with the exception's name.

    Usually that line begins with the exception's name; a SyntaxError's is the last line. If the
    text quotes another exception with its stack, return the quoted exception's line.
    """
    name, lines = failure.exception, failure.summary.splitlines()
    quoted = find_quoted_exception(failure.summary)
    first = (at for at, line in enumerate(lines) if name in line.partition(":")[0])
    lines = lines[next(first, len(lines)) :]
    line = format_first_line(lines) or name
    if re.search(_COUNTS_ERRORS, line):
        line = ": ".join([line, *_select_first_error(lines[1:])])
    if quoted is not None:
        line = quoted.line + (_IN_A_CALLBACK if "callback" in line else "")
    return shorten_line(line)


def _select_first_error(lines: list[str]) -> list[str]:
    """Return the first line with words, and the next if that is indented: the first error."""
    said = [line for line in lines if line.strip()][:2]
    more = said[1:] if said[1:] and said[1].startswith((" ", "\t")) else []
    return [line.strip() for line in [*said[:1], *more]]


def shorten_line(line: str) -> str:
    """Cut a line after 400 characters and mark the cut with " ..."."""
    return line if len(line) <= _LONGEST_HEADLINE else line[:_LONGEST_HEADLINE] + " ..."

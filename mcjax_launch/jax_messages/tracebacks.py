"""Python's tracebacks in what a rank prints, and which of them are a victim's; pure."""

import re

from mcjax_launch.jax_messages.lost_peer import is_of_lost_peer

#: The first line of each.
START = b"Traceback (most recent call last):"
# A log's "INFO: text" between the frames is taken for one: then more is shown than need be.
_EXCEPTION = re.compile(rb"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: .*)?")


def is_exception(line: bytes) -> bool:
    """Whether a line of a traceback is the one that names the exception."""
    return _EXCEPTION.fullmatch(line) is not None


def whose(data: bytes | bytearray) -> list[bool | None]:
    """For each traceback in the whole lines of `data`: whether it is a victim's; None: not over."""
    answers: list[bool | None] = []
    for line in data.split(b"\n")[:-1]:
        if line == START:
            answers.append(None)
        elif answers and answers[-1] is None and (exception := _EXCEPTION.fullmatch(line)):
            message = line.decode("utf-8", "replace")
            answers[-1] = is_of_lost_peer(exception[1].decode(), message)
    return answers

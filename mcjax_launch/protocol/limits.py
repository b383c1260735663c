"""The limits on a user's processes and open files, as a reason in words."""

from __future__ import annotations

import errno

_SEE = {errno.EAGAIN: "see `ulimit -u`", errno.EMFILE: "raise `ulimit -n`"}


def limit_in_words(error: OSError, otherwise: str = "") -> str:
    """Why there is no room for another process or file, and what limits it.

    Args:
        error: what the system said.
        otherwise: what to look at if it is no limit.

    """
    hint = _SEE.get(error.errno or 0, otherwise)
    return f"{error.strerror}; {hint}" if hint else str(error.strerror)

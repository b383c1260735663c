"""What `ulimit` limits: open files, of which we allow ourselves more, and processes."""

from __future__ import annotations

import errno

# What a launcher or an agent has open besides, generously.
_OURS = 24
# OPEN_MAX of macOS, whose hard limit says that there is none.
_MACOS_MOST = 10_240
_SEE = {errno.EAGAIN: "see `ulimit -u`", errno.EMFILE: "raise `ulimit -n`"}

#: The soft and the hard limit.
Limit = tuple[int, int]


def allow_many_files() -> Limit | None:
    """Raise the limit on this process's open files as far as it goes.

    Returns:
        the limit before, for children; None where nothing has changed.

    """
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (before[1], max(before[0], _MACOS_MOST)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        except (OSError, ValueError):  # macOS reports a limit that it does not accept
            continue
        return before
    return None


def limit_files(limit: Limit | None) -> Limit | None:
    """Set the limit on open files, if there is one to set; returns that before."""
    if limit is None:
        return None
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    return before


def too_many_files(count: int) -> str:
    """Why `count` more files cannot be open; empty if they can."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or count + _OURS <= limit:
        return ""
    return f"needs {count + _OURS} open files, and the limit is {limit}: raise `ulimit -n`"


def reason(error: OSError, otherwise: str = "") -> str:
    """Why there is no room for another process or file, and what limits it.

    Args:
        error: what the system said.
        otherwise: what to look at if it is no limit.

    """
    hint = _SEE.get(error.errno or 0, otherwise)
    return f"{error.strerror}; {hint}" if hint else str(error.strerror)

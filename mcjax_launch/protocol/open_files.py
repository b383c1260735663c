"""The limit on open files (`ulimit -n`): raised for ourselves; what we start keeps the user's."""

from __future__ import annotations

# What a launcher or an agent has open besides, generously.
_OURS = 24

#: The soft and the hard limit.
Limit = tuple[int, int]


def allow_many() -> Limit | None:
    """Raise the limit on this process's open files as far as it goes.

    Returns:
        the limit before, for children; None where nothing has changed.

    """
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    except (OSError, ValueError):  # macOS reports a limit that it does not accept
        return None
    return before


def set_limit(limit: Limit | None) -> Limit | None:
    """Set a limit, if there is one to set; returns that before."""
    if limit is None:
        return None
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    return before


def lacking(count: int) -> str:
    """Why `count` more files cannot be open; empty if they can."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or count + _OURS <= limit:
        return ""
    return f"needs {count + _OURS} open files, and the limit is {limit}: raise `ulimit -n`"

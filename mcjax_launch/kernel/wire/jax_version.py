"""The oldest jax that ranks may have."""

from __future__ import annotations

import re

OLDEST = (0, 6, 0)


def why_too_old(version: str) -> str:
    """What to say of a version of jax that is too old; "" of others, and of what is none."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None or tuple(map(int, match.groups())) >= OLDEST:
        return ""
    return f"jax {version} is too old: install {'.'.join(map(str, OLDEST))} or newer"

"""The Python of the ranks, and what can be known of a program before it runs."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_S = 8.0
_LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('jax') is None)"


def speaks_of_jax(path: str) -> bool:
    """Whether a Python program mentions jax; one that does not may need none."""
    with open(path, "rb") as source:
        return b"jax" in source.read(1 << 20)


def has_jax(python: str, cwd: str, environ: dict[str, str]) -> bool:
    """Whether this interpreter finds jax.

    Raises:
        OSError: it cannot be run.

    """
    import subprocess

    try:
        look = [python, "-c", _LOOK]
        done = subprocess.run(look, capture_output=True, cwd=cwd, env=environ, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        return True  # a slow disk: the rank will see
    return done.returncode == 0


def find(names: Sequence[str], path: str) -> str | None:
    """The first of these commands, or paths, that there is and that can be executed."""
    for name in names:
        places = [name] if os.sep in name else [os.path.join(p, name) for p in path.split(":")]
        for place in map(os.path.expanduser, places):
            if os.path.isfile(place) and os.access(place, os.X_OK):
                return place
    return None

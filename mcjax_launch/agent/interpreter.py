"""The Python of the ranks, and what can be known of a program before it runs."""

from __future__ import annotations

import os

from ..protocol.program_check import executable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_S = 8.0
_FINDS_JAX = "import importlib.util, sys; sys.exit(importlib.util.find_spec('jax') is None)"


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
        check = [python, "-c", _FINDS_JAX]
        done = subprocess.run(check, capture_output=True, cwd=cwd, env=environ, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        return True  # a slow disk: the rank will see
    return done.returncode == 0


def find(names: Sequence[str], path: str) -> str | None:
    """The first of these commands, or paths, that there is and that can be executed."""
    found = (executable(os.path.expanduser(name), "", path) for name in names)
    return next((python for python in found if python is not None), None)

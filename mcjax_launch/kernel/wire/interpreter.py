"""Pythons for the ranks, and what can be known of one and of a program before it runs."""

from __future__ import annotations

import os

from .program_check import executable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MOST_S = 8.0
_FINDS_JAX = (
    "import importlib.util as u, sys; s = u.find_spec('jax'); sys.exit(not (s and s.origin))"
)


def speaks_of_jax(path: str) -> bool:
    """Whether a Python program mentions jax; one that does not may need none."""
    with open(path, "rb") as source:
        return b"jax" in source.read(1 << 20)


def has_jax(python: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Whether this interpreter finds jax; it is started only if its folder does not tell.

    Raises:
        OSError: it cannot be run.

    """
    if _holds_jax(os.path.dirname(os.path.dirname(python))):
        return True
    import subprocess

    try:
        check = [python, "-c", _FINDS_JAX]
        done = subprocess.run(check, capture_output=True, cwd=cwd, env=environ, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        return True  # a slow disk: the rank will see
    return done.returncode == 0


def _holds_jax(prefix: str) -> bool:
    """Whether an environment of venv's or conda's has jax among its own packages."""
    if not any(os.path.exists(os.path.join(prefix, mark)) for mark in ("pyvenv.cfg", "conda-meta")):
        return False  # its Python may not look below its own folder, or there is another one
    lib = os.path.join(prefix, "lib")
    try:
        names = [name for name in os.listdir(lib) if name.startswith("python3")]
    except OSError:
        return False
    folders = {os.path.realpath(os.path.join(lib, name)) for name in names}
    packages = [os.path.join(folder, "site-packages") for folder in folders]
    return len(packages) == 1 and os.path.isfile(os.path.join(packages[0], "jax", "__init__.py"))


def find(names: Sequence[str], path: str) -> list[str]:
    """Those of these commands, or paths, that there are and that can be executed, each once.

    Args:
        names: a command is looked for in each folder of `path`, where its first is taken.
        path: PATH.

    """
    found = (executable(os.path.expanduser(name), "", path) for name in names)
    return _distinct(python for python in found if python is not None)


def in_folders(folders: Sequence[str], without: str) -> list[str]:
    """Every python3 and python in these folders, in their order, but for the Python `without`."""
    found = (executable(name, "", folder) for folder in folders for name in ("python3", "python"))
    known = _distinct(python for python in found if python is not None)
    return [python for python in known if environment(python) != environment(without)]


def environment(python: str) -> tuple[str, str]:
    """What is the same for all names of one Python with its packages.

    A link to it in another folder may be the Python of another environment.
    """
    return os.path.realpath(os.path.dirname(python)), os.path.realpath(python)


def _distinct(pythons: Iterator[str]) -> list[str]:
    known: dict[tuple[str, str], str] = {}
    for python in pythons:
        known.setdefault(environment(python), python)
    return list(known.values())

"""Search for the source file that a Python command runs."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WITH_VALUE = "WX"  # Python's options that take another word


class NoSource(Exception):
    """Error: a command runs no file, or it is not found; the text says which."""


def find_source(argv: Sequence[str], cwd: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the path of the file that a command runs, and the folder from which it imports.

    Args:
        argv: command line: Python, its options, and a program.
        cwd: folder of the command.
        environ: environment of the command.

    Raises:
        NoSource: the program is no file, or is not found.

    """
    words = iter(argv[1:])
    for word in words:
        if word.startswith("-m"):
            return _find_module_file(word[2:] or next(words, ""), argv[0], cwd, environ)
        if word.startswith("-c") or word == "-":
            raise NoSource("PROGRAM is not a file")
        if not word.startswith("-"):
            path = os.path.join(cwd, word)
            path = os.path.join(path, "__main__.py") if os.path.isdir(path) else path
            return path, os.path.dirname(os.path.realpath(path))
        if word[-1] in _WITH_VALUE and not word.startswith("--"):
            next(words, None)
    raise NoSource("PROGRAM is not a file")


def _find_module_file(
    name: str, python: str, cwd: str, environ: Mapping[str, str]
) -> tuple[str, str]:
    """Return a module's file, and the folder from which it imports its own modules.

    It is looked for in usual places: cwd, PYTHONPATH or site-packages.

    Raises:
        NoSource: it is in none of them.

    """
    from glob import escape, iglob

    prefix = os.path.dirname(os.path.dirname(os.path.join(cwd, python)))
    folders = [cwd, *(folder for folder in environ.get("PYTHONPATH", "").split(":") if folder)]
    folders += iglob(os.path.join(escape(prefix), "lib", "python3*", "site-packages"))
    for folder in folders:
        root = os.path.join(cwd, folder)
        path = os.path.join(root, *name.split("."))
        for file in (f"{path}.py", os.path.join(path, "__main__.py")):
            if os.path.isfile(file):
                return file, root
    raise NoSource(f"the source of {name} is not found")

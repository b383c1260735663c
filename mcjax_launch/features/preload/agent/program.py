"""Search a program's source for imports of jax, or of libraries that import it."""

from __future__ import annotations

import os

from ....machine.system import read_regular_file

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without ast
_WITH_VALUE = "WX"  # Python's options that take another word
_MOST_BYTES = 1 << 22


class Choice:
    """Decision to import jax for a program.

    Args:
        why: reason for the import, in words.
        settings: variables, with values, that the program sets to constants before it imports a
            library of JAX, and that differ from the environment.

    """

    def __init__(self, why: str, settings: Mapping[str, str]) -> None:
        self.why = why
        self.settings = settings


class Unsuited(Exception):
    """Error: nothing should be imported for a program; the text says why."""


def choose(
    argv: Sequence[str], cwd: str, environ: Mapping[str, str], libraries: Collection[str]
) -> Choice:
    """Decide whether to import jax for a rank's command.

    Args:
        argv: Python, its options, a program.
        cwd: folder of the command.
        environ: environment of the command.
        libraries: names of packages that import jax.

    Raises:
        Unsuited: the program imports none of them, or its imports cannot be found out.

    """
    path = find_source_file(argv, cwd, environ)
    name = os.path.basename(path)
    try:
        text = read_regular_file(path, _MOST_BYTES)
    except OSError as error:
        raise Unsuited(f"{name}: {error.strerror}") from None
    if not any(library.encode() in text for library in libraries):
        raise Unsuited(f"{name} does not import JAX")
    try:
        tree: Any = compile(text, path, "exec", _ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):  # maybe it is newer than this Python
        raise Unsuited(f"{name} cannot be parsed") from None
    found = next((package for package in _iterate_imports(tree) if package in libraries), None)
    if found is None:
        raise Unsuited(f"{name} does not import JAX")
    lines = text.decode("utf-8", "replace")
    return Choice(f"{name} imports {found}", _find_settings(lines, tree, libraries, environ))


def find_source_file(argv: Sequence[str], cwd: str, environ: Mapping[str, str]) -> str:
    """Return the path of the file that a command runs.

    Args:
        argv: command line: Python, its options, and a program.
        cwd: folder of the command.
        environ: environment of the command.

    Raises:
        Unsuited: the program is no file, or is not found.

    """
    words = iter(argv[1:])
    for word in words:
        if word.startswith("-m"):
            return _find_module_file(word[2:] or next(words, ""), argv[0], cwd, environ)
        if word.startswith("-c") or word == "-":
            raise Unsuited("PROGRAM is not a file")
        if not word.startswith("-"):
            path = os.path.join(cwd, word)
            return os.path.join(path, "__main__.py") if os.path.isdir(path) else path
        if word[-1] in _WITH_VALUE and not word.startswith("--"):
            next(words, None)
    raise Unsuited("PROGRAM is not a file")


def _find_module_file(name: str, python: str, cwd: str, environ: Mapping[str, str]) -> str:
    """Return a module's file, if it is in a usual place: cwd, PYTHONPATH or site-packages.

    Raises:
        Unsuited: it is in none of them.

    """
    from glob import escape, iglob

    prefix = os.path.dirname(os.path.dirname(os.path.join(cwd, python)))
    folders = [cwd, *(folder for folder in environ.get("PYTHONPATH", "").split(":") if folder)]
    folders += iglob(os.path.join(escape(prefix), "lib", "python3*", "site-packages"))
    for folder in folders:
        path = os.path.join(cwd, folder, *name.split("."))
        for file in (f"{path}.py", os.path.join(path, "__main__.py")):
            if os.path.isfile(file):
                return file
    raise Unsuited(f"the source of {name} is not found")


def _iterate_imports(node: Any) -> Iterator[str]:
    """Yield the packages that a syntax tree imports anywhere, except under `if TYPE_CHECKING:`."""
    kind = type(node).__name__
    if kind == "Import":
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif kind == "ImportFrom" and not node.level:
        yield node.module.partition(".")[0]
    parts = node.orelse if kind == "If" and _is_for_types(node.test) else _iterate_statements(node)
    for part in parts:
        yield from _iterate_imports(part)


def _iterate_statements(node: Any) -> Iterator[Any]:
    """Yield the statements in a statement."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        parts = getattr(node, field, ())
        if isinstance(parts, list):
            yield from parts


def _is_for_types(test: Any) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _find_settings(
    text: str, tree: Any, libraries: Collection[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return variables that a module sets to constants, a line each, before it needs a library."""
    needs = (part.lineno for part in tree.body if {*_iterate_imports(part)} & {*libraries})
    found: dict[str, str] = {}
    for line in text.splitlines()[: next(needs) - 1]:
        words = line.partition("#")[0].replace("'", '"').split('"')
        if len(words) != 5 or "\\" in line:
            continue
        begin, name, middle, value, end = words
        shape = begin.replace("os.environ", "environ"), middle.replace(" ", ""), end.strip()
        is_default = shape == ("environ.setdefault(", ",", ")")
        if shape == ("environ[", "]=", "") or (is_default and name not in {**environ, **found}):
            found[name] = value
    return {name: value for name, value in found.items() if environ.get(name) != value}

"""Search a program's source for imports of jax, and for variables that those imports read."""

from __future__ import annotations

import os
import re

from ....machine.system import read_regular_file
from ..messages import READ_BY_JAX, READ_BY_LIBRARIES

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without ast
_WITH_VALUE = "WX"  # Python's options that take another word
_MOST_BYTES = 1 << 22
_MOST_FILES = 64
_READ = (*READ_BY_JAX, *READ_BY_LIBRARIES)
_VARIABLE = re.compile(f"(?:{'|'.join(_READ)})[A-Z0-9_]+")
_COORDINATES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_DOTENV = "load_dotenv"
# The field with a name, by the kind of a node of the syntax tree.
_NAMED = {"Constant": "value", "keyword": "arg", "Name": "id", "Attribute": "attr"}


class Unsuited(Exception):
    """Error: nothing should be imported for a program; the text says why."""


def find_library(
    argv: Sequence[str], cwd: str, environ: Mapping[str, str], libraries: Collection[str]
) -> str:
    """Return the library for which jax is to be imported before a rank's program, in words.

    Args:
        argv: Python, its options, a program.
        cwd: folder of the command.
        environ: environment of the command.
        libraries: names of packages that import jax.

    Raises:
        Unsuited: the program imports none of them, or names a variable that their import reads.

    """
    path = find_source_file(argv, cwd, environ)
    name = os.path.basename(path)
    try:
        text = read_regular_file(path, _MOST_BYTES)
    except OSError as error:
        raise Unsuited(f"{name}: {error.strerror}") from None
    if not any(library.encode() in text for library in libraries):
        raise Unsuited(f"{name} does not import JAX")
    tree = _parse(text, path)
    found = next((package for package in _iterate_imports(tree) if package in libraries), None)
    if found is None:
        raise Unsuited(f"{name} does not import JAX")
    _check_settings(path, text, tree)
    return f"{name} imports {found}"


def _parse(text: bytes, path: str) -> Any:
    try:
        return compile(text, path, "exec", _ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):  # maybe it is newer than this Python
        raise Unsuited(f"{os.path.basename(path)} cannot be parsed") from None


def _check_settings(path: str, text: bytes, tree: Any) -> None:
    """Check that a program, and the modules beside it that it imports, name no such variable.

    Raises:
        Unsuited: one of them does.

    """
    folder, seen, ahead = os.path.dirname(path), {path}, [(path, text, tree)]
    while ahead:
        path, text, tree = ahead.pop()
        if (name := _find_variable(text, tree)) is not None:
            raise Unsuited(f"{os.path.basename(path)} names {name}, which imports of jax read")
        for module in tree.body:
            for package in _iterate_imports(module) if _is_import(module) else ():
                beside = os.path.join(folder, f"{package}.py")
                if beside in seen or len(seen) > _MOST_FILES:
                    continue
                seen.add(beside)
                try:
                    text = read_regular_file(beside, _MOST_BYTES)
                except OSError:  # it is not beside the program
                    continue
                ahead.append((beside, text, _parse(text, beside)))


def _find_variable(text: bytes, tree: Any) -> str | None:
    """Return a variable that a source names and the import of jax reads; None if there is none.

    It may be a key of os.environ, an argument of setdefault, update or putenv, or a word of it.
    The rank's coordinates are read later.
    """
    if not any(begin.encode() in text for begin in (*_READ, _DOTENV)):
        return None
    for node in _walk(tree):
        name = getattr(node, _NAMED.get(type(node).__name__, ""), None)
        if name == _DOTENV:
            return "load_dotenv"
        if isinstance(name, str) and _VARIABLE.fullmatch(name) and name not in _COORDINATES:
            return name
    return None


def _walk(node: Any) -> Iterator[Any]:
    ahead = [node]
    while ahead:
        node = ahead.pop()
        yield node
        for field in node._fields:
            value = getattr(node, field, None)
            parts = value if isinstance(value, list) else [value]
            ahead += [part for part in parts if hasattr(part, "_fields")]


def _is_import(node: Any) -> bool:
    return type(node).__name__ in ("Import", "ImportFrom", "Try", "If", "With")


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

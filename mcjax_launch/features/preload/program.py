"""Search a program's own files for imports of jax, and for what changes the result of such imports.

The files are searched as text, so that a host's Python need not be able to parse them. They are
PROGRAM, and the modules and packages of its folder that it imports.
"""

from __future__ import annotations

import os
import re

from ...machine.python_program import NoSource, find_source
from ...machine.system import read_regular_file
from .messages import COORDINATES, READ_AT_IMPORT

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: A program that imports one of these imports jax.
LIBRARIES = frozenset(
    {
        *("jax", "flax", "optax", "orbax", "equinox", "haiku", "chex", "diffrax", "lineax"),
        *("optimistix", "numpyro", "netket", "blackjax", "brax", "distrax", "rlax", "jaxopt"),
        *("jraph", "penzai", "levanter", "haliax", "MaxText", "maxtext", "t5x", "praxis", "paxml"),
        *("evosax", "ott", "e3nn_jax", "jax_md", "mujoco_playground", "tunix", "axlearn"),
        *("mpi4jax", "jaxlie", "quax", "eqxvision", "treescope", "clu"),
    }
)
_SHARED = ("site-packages", "dist-packages")  # whose packages are not all the program's own
_MOST_BYTES, _MOST_FILES = 1 << 22, 500
_IMPORT = re.compile(
    rb"(?m)(?:^|[;:])[ \t]*(?:"
    rb"from[ \t]+(?=[.\w])(\.*)((?:\w[\w.]*)?)[ \t]*\bimport\b[ \t]*"
    rb"(\([^)]{0,2000}\)|[^\n;]*)|import[ \t]+([\w., \t]+))"
)
_WORD, _COMMENT = re.compile(rb"\w+"), re.compile(rb"(?m)^[ \t]*#.*")
_VARIABLE = f"(?:{'|'.join(READ_AT_IMPORT)})[A-Z0-9_]*".encode()
# As a string, `environ["JAX_X"]`, or an argument's name, `update(JAX_X="1")`.
_CHANGES = re.compile(
    rb"""["'](%b)["']|[(,]\s*(%b)\s*=(?!=)|\b(load_dotenv|sys\.(?:path|meta_path)|addsitedir)\b"""
    % (_VARIABLE, _VARIABLE)
)


class Unsuited(Exception):
    """Error: nothing should be imported for a program; the text says why."""


def find_library(argv: Sequence[str], cwd: str, environ: Mapping[str, str]) -> str:
    """Return the library for which jax is to be imported before a rank's program, in words.

    Args:
        argv: Python, its options, a program.
        cwd: folder of the command.
        environ: environment of the command.

    Raises:
        Unsuited: the program's files import none, or name what changes the result of that import.

    """
    try:
        path, root = find_source(argv, cwd, environ)
    except NoSource as error:
        raise Unsuited(str(error)) from None
    name, found = os.path.basename(path), ""
    for file, text in _iterate_sources(path, root):
        for match in _CHANGES.finditer(text):
            word = (match[1] or match[2] or match[3]).decode()
            if word not in COORDINATES:
                raise Unsuited(
                    f"{os.path.basename(file)} names {word}, on which imports of jax depend"
                )
        if not found:
            packages = (steps[0] for dots, steps in _iterate_imports(text) if not dots and steps)
            library = next((package for package in packages if package in LIBRARIES), None)
            found = (library and f"{os.path.basename(file)} imports {library}") or ""
    if not found:
        raise Unsuited(f"{name} does not import JAX")
    return found


def _iterate_sources(path: str, root: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the text of a program's file, and of those below `root` that it imports.

    Raises:
        Unsuited: the program's file cannot be read, or there are too many.

    """
    ahead, seen = [path], {path}
    while ahead:
        file = ahead.pop()
        try:
            text = _COMMENT.sub(b"", read_regular_file(file, _MOST_BYTES))
        except OSError as error:
            if file == path:
                raise Unsuited(f"{os.path.basename(path)}: {error.strerror}") from None
            continue  # it is not beside the program
        yield file, text
        for found in _iterate_candidates(file, text, root):
            if found not in seen:
                seen.add(found)
                ahead.append(found)
        if len(ahead) > _MOST_FILES:
            raise Unsuited(f"{os.path.basename(path)} imports more than {_MOST_FILES} files")


def _iterate_candidates(file: str, text: bytes, root: str) -> Iterator[str]:
    """Yield the paths at which the modules could be that a file imports."""
    own = os.path.relpath(file, root).partition(os.sep)[0]
    is_shared = os.path.basename(root) in _SHARED
    for dots, steps in _iterate_imports(text):
        if is_shared and not dots and steps[0] != own:
            continue
        folder = os.path.dirname(file) if dots else root
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        if dots:
            yield os.path.join(folder, "__init__.py")
        for step in steps:
            folder = os.path.join(folder, step)
            if not os.path.isdir(folder):
                yield f"{folder}.py"
                break
            yield os.path.join(folder, "__init__.py")
            yield f"{folder}.py"


def _iterate_imports(text: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the modules that a source imports: the number of leading dots, and their names."""
    for dots, package, names, modules in _IMPORT.findall(text):
        for module in modules.split(b","):
            if words := module.split():
                yield 0, words[0].decode("utf-8", "replace").split(".")
        steps = [step.decode("utf-8", "replace") for step in package.split(b".") if step]
        if dots or steps:
            yield len(dots), steps
        for name in _WORD.findall(names):
            yield len(dots), [*steps, name.decode("utf-8", "replace")]

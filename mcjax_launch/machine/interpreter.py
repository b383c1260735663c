"""Checks of PROGRAM, the ranks' Python and its jax, before ranks start."""

from __future__ import annotations

import os
import sys

from ..wire.exit_status import NOT_EXECUTABLE, NOT_FOUND, compute_spawn_status
from .system import read_regular_file

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# --- jax's version ---

OLDEST_JAX = (0, 6, 0)


def explain_old_jax(version: str) -> str:
    """Return an error message if this version of jax is too old; "" if not, or if unknown."""
    import re  # slow to import, and a start needs none

    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None or tuple(map(int, match.groups())) >= OLDEST_JAX:
        return ""
    return f"jax {version} is too old: install {'.'.join(map(str, OLDEST_JAX))} or newer"


# --- whether PROGRAM can be run ---


class Unusable(Exception):
    """Error: PROGRAM, or the whole job, cannot run on this host.

    Args:
        message: text on the cause and the cure, without the host's name.
        status: exit status for the launcher.

    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def check_python_file(name: str, cwd: str, hint: str = "") -> None:
    """Check that a Python program exists and can be read.

    Args:
        name: name of the file, relative to `cwd`.
        cwd: working directory.
        hint: advice if the file is missing; "" to have `suggest_cure` look for a likely mistake.

    Raises:
        Unusable: the file is missing or cannot be read.

    """
    path = os.path.join(cwd, name)
    if not os.path.exists(path):
        raise Unusable(
            f"{name}: no such file in {cwd}{hint or suggest_cure(name, path)}", NOT_FOUND
        )
    if os.path.isdir(path):
        raise Unusable(f"{name}: is a directory{_suggest_in_folder(name, path)}", NOT_EXECUTABLE)
    if not os.access(path, os.R_OK):
        raise Unusable(f"{name}: not a readable file", NOT_EXECUTABLE)


def suggest_cure(name: str, path: str) -> str:
    """Return advice for a missing file: a likely mistake, or a similar name; "" if none is known.

    Args:
        name: name of the file, as the user wrote it.
        path: path at which the file is missing.

    """
    near = _find_similar_file(*os.path.split(path))
    is_line = len(name.split()) > 1
    if near and (" " in near or not is_line):
        folder = os.path.dirname(name) or ("" if near.endswith(".py") else ".")
        return f"; did you mean {os.path.join(folder, near)}?"
    if is_line:
        return "; pass PROGRAM and its arguments as separate words: leave out the quotes"
    if name.partition("=")[0].isidentifier() and "=" in name:
        return f"; set variables with -x {name}"
    module = os.path.join(os.path.dirname(path), *name.split("."))
    if os.sep not in name and os.path.isfile(f"{module}.py"):
        return f"; write -m {name}"
    return ""


def _find_similar_file(folder: str, name: str) -> str:
    """Return the name of a program in `folder` with a name like `name`; "" if there is none."""
    import difflib

    if os.path.isfile(os.path.join(folder, f"{name}.py")):
        return f"{name}.py"
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    for near in difflib.get_close_matches(name, names, 3, 0.8):
        path = os.path.join(folder, near)
        if os.path.isfile(path) and (near.endswith(".py") or os.access(path, os.X_OK)):
            return near
    return ""


def _suggest_in_folder(name: str, path: str) -> str:
    """Return advice on what to run instead of a folder; "" if it cannot be read.

    Args:
        name: name of the folder, as the user wrote it.
        path: path of the folder.

    """
    try:
        files = sorted(file for file in os.listdir(path) if file.endswith(".py"))
    except OSError:
        return ""
    module = os.path.normpath(name).replace(os.sep, ".")
    if "__main__.py" in files and not os.path.isabs(name) and module[0] != ".":
        return f"; write -m {module}"
    likely = [file for file in files if file in ("train.py", "main.py")] or files
    if likely and (len(files) == 1 or likely != files):
        return f"; did you mean {os.path.join(name, likely[-1])}?"
    return "; name a program in it"


def find_executable(name: str, cwd: str, path: str) -> str | None:
    """Return the path of a command's executable file; None if there is none.

    Args:
        name: the command; relative to `cwd` if it contains a slash, else searched for in `path`.
        cwd: working directory.
        path: value of PATH.

    """
    return next(_iterate_executables(name, cwd, path), None)


def _iterate_executables(name: str, cwd: str, path: str) -> Iterator[str]:
    return (file for file in _list_files(name, cwd, path) if os.access(file, os.X_OK))


def _list_files(name: str, cwd: str, path: str) -> list[str]:
    """Return the paths of existing files with a command's name, in the order of PATH."""
    places = [cwd] if os.sep in name else path.split(os.pathsep)
    paths = [os.path.join(place, name) for place in places]
    return [file for file in paths if os.path.isfile(file)]


def find_command(name: str, cwd: str, path: str, option: str = "", hint: str = "") -> str:
    """Return the path of a command as a rank would find it.

    Args:
        name: the command; relative to `cwd` if it contains a slash, else searched for in PATH.
        cwd: working directory.
        path: value of PATH.
        option: option that names the command, with which error messages begin; "" for none.
        hint: advice if the file is missing; "" to have `suggest_cure` look for a likely mistake.

    Raises:
        Unusable: there is no such command, or it is not executable.

    """
    found = list(_iterate_executables(name, cwd, path))
    if len(found) == 1:  # with several, exec goes on to the next after a refusal
        from .program_file import explain_bad_first_line  # most jobs need none

        if why := explain_bad_first_line(name, found[0], cwd, path):
            raise Unusable(f"{option}{name}: {why}", NOT_EXECUTABLE)
    if found:
        return found[0]
    beside = os.path.join(cwd, name)
    if os.path.isdir(beside) and (os.sep in name or not os.path.exists(f"{beside}.py")):
        hint = "" if option else _suggest_in_folder(name, beside)
        raise Unusable(f"{option}{name}: is a directory{hint}", NOT_EXECUTABLE)
    if files := _list_files(name, cwd, path):
        is_barred = os.statvfs(files[0]).f_flag & getattr(os, "ST_NOEXEC", 0)  # Linux
        how = "copy it from a file system mounted noexec" if is_barred else "chmod +x it"
        hint = "" if option else f"; {how}, or run it with its interpreter: bash {name}"
        raise Unusable(f"{option}{name}: not executable{hint}", NOT_EXECUTABLE)
    if os.sep in name and os.path.exists(beside):
        cure = hint if option else f"; run it with its interpreter: python {name}"
        raise Unusable(f"{option}{name}: is not a regular file{cure}", NOT_EXECUTABLE)
    where = "no such file" if os.sep in name else "not found in PATH"
    if os.sep not in name and os.path.isfile(beside):
        hint = f"; did you mean ./{name}?"
    elif not option:
        hint = hint or suggest_cure(name, beside)
    raise Unusable(f"{option}{name}: {where}{hint}", NOT_FOUND)


def make_refusal_error(name: str, cwd: str, path: str, code: int) -> Unusable:
    """Return the error for a command, or a working directory, that the kernel has refused.

    Args:
        name: name of the command, or path of the directory.
        cwd: working directory.
        path: value of PATH.
        code: errno of the kernel.

    """
    file = find_executable(name, cwd, path)
    if file is None:
        return Unusable(f"{name}: {os.strerror(code)}", compute_spawn_status(code))
    from .program_file import explain_exec_refusal

    return Unusable(f"{name}: {explain_exec_refusal(name, file, code)}", NOT_EXECUTABLE)


# --- Pythons for the ranks ---

_MOST_S = 8.0
_FINDS_JAX = (
    # The current folder is no place where PROGRAM finds jax, and nothing is imported from there.
    "import sys; del sys.path[:not getattr(sys.flags, 'safe_path', 0)]; "
    "import importlib.util as u; s = u.find_spec('jax'); "
    "print(s and s.origin); sys.exit(not (s and s.origin))"
)
_STATES_VERSION = "_version = "  # at the start of a line of jax/version.py


def mentions_jax(path: str) -> bool:
    """Return whether the text of a Python program contains "jax" (in its first MiB)."""
    try:
        return b"jax" in read_regular_file(path, 1 << 20)
    except OSError:  # maybe a pipe
        return False


def has_jax(python: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Return whether an interpreter finds jax; start it only if its folder has no jax.

    Args:
        python: path of the interpreter.
        cwd: working directory of the interpreter.
        environ: environment variables of the ranks.

    Raises:
        OSError: the interpreter cannot be run.

    """
    if _find_own_jax_file(python):
        return True
    return _query_jax_file(python, cwd, environ) is not None


def find_jax_version(python: str, cwd: str, environ: Mapping[str, str]) -> str:
    """Return the version of the jax that an interpreter finds, without importing it.

    Args:
        python: path of the interpreter.
        cwd: working directory of the interpreter, if it must be started.
        environ: environment variables of the ranks.

    Returns:
        the version; "" if unknown.

    """
    # In a venv its own packages come first, unless PYTHONPATH is set.
    mark = os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")
    own_first = os.path.exists(mark) and "PYTHONPATH" not in environ
    try:
        found = (own_first and _find_own_jax_file(python)) or _query_jax_file(python, cwd, environ)
        if not found:
            return ""
        with open(os.path.join(os.path.dirname(found), "version.py"), encoding="utf-8") as file:
            stated = [line for line in file if line.startswith(_STATES_VERSION)]
    except (OSError, ValueError):
        return ""
    return stated[0][len(_STATES_VERSION) :].strip().strip("\"'") if stated else ""


def _query_jax_file(python: str, cwd: str, environ: Mapping[str, str]) -> str | None:
    """Return jax's file as found by an interpreter; "" if that is too slow, None if no jax.

    Raises:
        OSError: the interpreter cannot be run.

    """
    import subprocess

    try:
        check = [python, "-c", _FINDS_JAX]
        done = subprocess.run(check, capture_output=True, cwd=cwd, env=environ, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        return ""  # a slow disk; if jax is missing, the rank reports it
    if done.returncode != 0:
        return None
    return done.stdout.decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2]


def _find_own_jax_file(python: str) -> str:
    """Return jax's file in the packages of a venv or conda environment; "" if it has none.

    Args:
        python: path of the environment's interpreter.

    """
    prefix = os.path.dirname(os.path.dirname(python))
    if not any(os.path.exists(os.path.join(prefix, mark)) for mark in ("pyvenv.cfg", "conda-meta")):
        return ""  # such a Python may search other folders than its own
    lib = os.path.join(prefix, "lib")
    try:
        names = [name for name in os.listdir(lib) if name.startswith("python3")]
    except OSError:
        return ""
    folders = {os.path.realpath(os.path.join(lib, name)) for name in names}
    packages = [os.path.join(folder, "site-packages") for folder in folders]
    files = [os.path.join(folder, "jax", "__init__.py") for folder in packages]
    return files[0] if len(files) == 1 and os.path.isfile(files[0]) else ""


def find(names: Sequence[str], path: str) -> list[str]:
    """Return the paths of those of the named Pythons that exist, each Python once.

    Args:
        names: paths, or commands of which the first match in `path` counts.
        path: value of PATH.

    """
    found = (find_executable(os.path.expanduser(name), "", path) for name in names)
    return _select_distinct(python for python in found if python is not None)


def find_in_folders(folders: Sequence[str], without: str) -> list[str]:
    """Return each python3 and python in these folders, each Python once, except `without`."""
    found = (
        find_executable(name, "", folder) for folder in folders for name in ("python3", "python")
    )
    known = _select_distinct(python for python in found if python is not None)
    return [
        python for python in known if make_environment_key(python) != make_environment_key(without)
    ]


def make_environment_key(python: str) -> tuple[str, str]:
    """Return a key that is equal for all names (python, python3) of one environment's Python.

    It includes the folder, because links to one Python in two folders can be of two environments.
    """
    return os.path.realpath(os.path.dirname(python)), os.path.realpath(python)


def _select_distinct(pythons: Iterator[str]) -> list[str]:
    known: dict[tuple[str, str], str] = {}
    for python in pythons:
        known.setdefault(make_environment_key(python), python)
    return list(known.values())


def is_importable(name: str) -> bool:
    """Return whether this process can import a package; faster than importlib.util.find_spec."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    specs = (finder.find_spec(name, None) for finder in finders)
    # A folder of this name without __init__.py is not a package; it has no origin.
    return any(spec.origin for spec in specs if spec is not None)

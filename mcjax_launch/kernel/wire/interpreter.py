"""Checks of what ranks run, before it runs: PROGRAM, a Python, a jax."""

from __future__ import annotations

import os

from .exit_status import NOT_EXECUTABLE, NOT_FOUND, of_spawn_error

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# --- jax's version ---

OLDEST_JAX = (0, 6, 0)


def why_jax_too_old(version: str) -> str:
    """Return a message if this version of jax is too old; "" otherwise, or if it is no version."""
    import re  # slow to import, and a start needs none

    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None or tuple(map(int, match.groups())) >= OLDEST_JAX:
        return ""
    return f"jax {version} is too old: install {'.'.join(map(str, OLDEST_JAX))} or newer"


# --- whether PROGRAM can be run ---


class Unusable(Exception):
    """PROGRAM, or the whole job, cannot run here.

    Args:
        message: what is wrong and what to do, without the host's name.
        status: the launcher's exit status.

    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def check_python_file(name: str, cwd: str, hint: str = "") -> None:
    """Check that a Python program exists and can be read.

    Args:
        name: the file's name, relative to `cwd`.
        hint: advice for a missing file; without it, `cure` looks for a likely mistake.

    Raises:
        Unusable: the file is missing or cannot be read.

    """
    path = os.path.join(cwd, name)
    if not os.path.exists(path):
        raise Unusable(f"{name}: no such file in {cwd}{hint or cure(name, path)}", NOT_FOUND)
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        is_folder = os.path.isdir(path)
        what = f"is a directory{_in_folder(name, path)}" if is_folder else "not a readable file"
        raise Unusable(f"{name}: {what}", NOT_EXECUTABLE)


def cure(name: str, path: str) -> str:
    """Return advice for a missing `name`: a mistake in the shell, or a file with a similar name.

    Args:
        name: the file, as the user wrote it.
        path: where the file would be.

    """
    near = _near_file(*os.path.split(path))
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


def _near_file(folder: str, name: str) -> str:
    """Return a file with a similar name that can be a program; "" if there is none."""
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


def _in_folder(name: str, path: str) -> str:
    """Return advice if PROGRAM is a folder.

    Args:
        name: the folder, as the user wrote it.
        path: where the folder is.

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


def executable(name: str, cwd: str, path: str) -> str | None:
    """Return a command's path, as `find_command` does; None if no executable is found."""
    return next(_executables(name, cwd, path), None)


def _executables(name: str, cwd: str, path: str) -> Iterator[str]:
    return (file for file in _files(name, cwd, path) if os.access(file, os.X_OK))


def _files(name: str, cwd: str, path: str) -> list[str]:
    """Return the existing files that a command's name can stand for, first choice first."""
    places = [cwd] if os.sep in name else path.split(os.pathsep)
    paths = [os.path.join(place, name) for place in places]
    return [file for file in paths if os.path.isfile(file)]


def find_command(name: str, cwd: str, path: str, option: str = "", hint: str = "") -> str:
    """Return the path of a command as a rank would find it.

    Args:
        name: the command; relative to `cwd` if it contains a slash, else searched for in PATH.
        path: PATH.
        option: the option that names the command; error messages begin with it.
        hint: advice for a missing file; without it, `cure` looks for a likely mistake.

    Raises:
        Unusable: there is no such command, or it is not executable.

    """
    found = list(_executables(name, cwd, path))
    if len(found) == 1:  # with several, exec goes on to the next after a refusal
        _check_first_line(name, found[0], cwd, path, option)
    if found:
        return found[0]
    beside = os.path.join(cwd, name)
    if os.path.isdir(beside) and (os.sep in name or not os.path.exists(f"{beside}.py")):
        hint = "" if option else _in_folder(name, beside)
        raise Unusable(f"{option}{name}: is a directory{hint}", NOT_EXECUTABLE)
    if files := _files(name, cwd, path):
        is_barred = os.statvfs(files[0]).f_flag & getattr(os, "ST_NOEXEC", 0)  # Linux
        how = "copy it from a file system mounted noexec" if is_barred else "chmod +x it"
        hint = "" if option else f"; {how}, or run it with its interpreter: bash {name}"
        raise Unusable(f"{option}{name}: not executable{hint}", NOT_EXECUTABLE)
    where = "no such file" if os.sep in name else "not found in PATH"
    if os.sep not in name and os.path.isfile(beside):
        hint = f"; did you mean ./{name}?"
    elif not option:
        hint = hint or cure(name, beside)
    raise Unusable(f"{option}{name}: {where}{hint}", NOT_FOUND)


def _check_first_line(name: str, file: str, cwd: str, path: str, option: str) -> None:
    from .program_file import wrong_first_line  # most jobs need none

    if why := wrong_first_line(name, file, cwd, path):
        raise Unusable(f"{option}{name}: {why}", NOT_EXECUTABLE)


def refused(name: str, cwd: str, path: str, code: int) -> Unusable:
    """Return the error for a command, or a working directory, that the kernel has refused.

    Args:
        name: the command.
        cwd: the working directory.
        path: PATH.
        code: the errno.

    """
    file = executable(name, cwd, path)
    if file is None:
        return Unusable(f"{name}: {os.strerror(code)}", of_spawn_error(code))
    from .program_file import why_not_executed

    return Unusable(f"{name}: {why_not_executed(name, file, code)}", NOT_EXECUTABLE)


# --- Pythons for the ranks ---

_MOST_S = 8.0
_FINDS_JAX = (
    "import importlib.util as u, sys; s = u.find_spec('jax'); "
    "print(s and s.origin); sys.exit(not (s and s.origin))"
)
_STATES_VERSION = "_version = "  # at the start of a line of jax/version.py


def speaks_of_jax(path: str) -> bool:
    """Return whether a Python program's text mentions jax; if not, it may not need jax."""
    with open(path, "rb") as source:
        return b"jax" in source.read(1 << 20)


def has_jax(python: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Return whether this interpreter finds jax; start it only if its folder does not tell.

    Raises:
        OSError: the interpreter cannot be run.

    """
    if _own_jax(python):
        return True
    return _found_jax(python, cwd, environ) is not None


def jax_version(python: str, cwd: str, environ: Mapping[str, str]) -> str:
    """Return the version of the jax that an interpreter finds, without importing it.

    Args:
        python: the interpreter's path.
        cwd: where to start the interpreter, if its folder does not tell.
        environ: the ranks' variables.

    Returns:
        the version; "" if unknown.

    """
    # In a venv its own packages come first, unless PYTHONPATH is set.
    mark = os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")
    own_first = os.path.exists(mark) and "PYTHONPATH" not in environ
    try:
        found = (own_first and _own_jax(python)) or _found_jax(python, cwd, environ)
        if not found:
            return ""
        with open(os.path.join(os.path.dirname(found), "version.py"), encoding="utf-8") as file:
            stated = [line for line in file if line.startswith(_STATES_VERSION)]
    except (OSError, ValueError):
        return ""
    return stated[0][len(_STATES_VERSION) :].strip().strip("\"'") if stated else ""


def _found_jax(python: str, cwd: str, environ: Mapping[str, str]) -> str | None:
    """Ask an interpreter for jax's file; return "" if it takes too long, None if it finds no jax.

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


def _own_jax(python: str) -> str:
    """Return jax's file in the packages of a venv or conda environment; "" if it is not there.

    Args:
        python: the environment's interpreter.

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
    """Return the executable files that these commands or paths stand for, each Python once.

    Args:
        names: paths, or commands to search for in `path`, where the first match counts.
        path: PATH.

    """
    found = (executable(os.path.expanduser(name), "", path) for name in names)
    return _distinct(python for python in found if python is not None)


def in_folders(folders: Sequence[str], without: str) -> list[str]:
    """Return every python3 and python in these folders, in order, except the Python `without`."""
    found = (executable(name, "", folder) for folder in folders for name in ("python3", "python"))
    known = _distinct(python for python in found if python is not None)
    return [python for python in known if environment(python) != environment(without)]


def environment(python: str) -> tuple[str, str]:
    """Return a key that is equal for all names of one Python in the same environment.

    It includes the folder, because a link in another folder can be the Python of another
    environment.
    """
    return os.path.realpath(os.path.dirname(python)), os.path.realpath(python)


def _distinct(pythons: Iterator[str]) -> list[str]:
    known: dict[tuple[str, str], str] = {}
    for python in pythons:
        known.setdefault(environment(python), python)
    return list(known.values())

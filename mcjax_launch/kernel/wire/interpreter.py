"""What ranks run: PROGRAM, a Python, a jax; what can be known of each before it runs."""

from __future__ import annotations

import os

from .exit_status import NOT_EXECUTABLE, NOT_FOUND, of_spawn_error

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# --- jax's version ---

OLDEST_JAX = (0, 6, 0)


def why_jax_too_old(version: str) -> str:
    """What to say of a version of jax that is too old; "" of others, and of what is none."""
    import re  # which no start needs

    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None or tuple(map(int, match.groups())) >= OLDEST_JAX:
        return ""
    return f"jax {version} is too old: install {'.'.join(map(str, OLDEST_JAX))} or newer"


# --- whether PROGRAM can be run ---


class Unusable(Exception):
    """PROGRAM, or the job, cannot be run here.

    Args:
        message: what, and what to do; without the host's name.
        status: the launcher's exit status.

    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def check_python_file(name: str, cwd: str, hint: str = "") -> None:
    """Whether a Python program is there.

    Args:
        name: of the file, from `cwd`.
        hint: what helps where it is not; without one, a mistake is looked for.

    Raises:
        Unusable: it is not, or cannot be read.

    """
    path = os.path.join(cwd, name)
    if not os.path.exists(path):
        raise Unusable(f"{name}: no such file in {cwd}{hint or cure(name, path)}", NOT_FOUND)
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        is_folder = os.path.isdir(path)
        what = f"is a directory{_in_folder(name, path)}" if is_folder else "not a readable file"
        raise Unusable(f"{name}: {what}", NOT_EXECUTABLE)


def cure(name: str, path: str) -> str:
    """What helps where there is no `name`: a mistake in the shell, or a file of a near name.

    Args:
        name: of the file, as the user wrote it.
        path: where it would be.

    """
    near = _near_file(*os.path.split(path))
    is_line = len(name.split()) > 1
    if near and (" " in near or not is_line):
        folder = os.path.dirname(name) or ("" if near.endswith(".py") else ".")
        return f"; did you mean {os.path.join(folder, near)}?"
    if is_line:
        return "; PROGRAM and its arguments are words of their own: leave out the quotes"
    if name.partition("=")[0].isidentifier() and "=" in name:
        return f"; set variables with -x {name}"
    module = os.path.join(os.path.dirname(path), *name.split("."))
    if os.sep not in name and os.path.isfile(f"{module}.py"):
        return f"; write -m {name}"
    return ""


def _near_file(folder: str, name: str) -> str:
    """A file whose name is nearly this one, if it can be a program."""
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
    """What helps where PROGRAM is a folder.

    Args:
        name: of it, as the user wrote it.
        path: where it is.

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
    """The path of a command, see `find_command`; None if there is none that can be executed."""
    return next(_executables(name, cwd, path), None)


def _executables(name: str, cwd: str, path: str) -> Iterator[str]:
    return (file for file in _files(name, cwd, path) if os.access(file, os.X_OK))


def _files(name: str, cwd: str, path: str) -> list[str]:
    """The files that a command's name may stand for, the first choice first."""
    places = [cwd] if os.sep in name else path.split(os.pathsep)
    paths = [os.path.join(place, name) for place in places]
    return [file for file in paths if os.path.isfile(file)]


def find_command(name: str, cwd: str, path: str, option: str = "", hint: str = "") -> str:
    """The path of a command as a rank would find it.

    Args:
        name: of the command; from `cwd` if there is a slash in it, else searched for in PATH.
        path: PATH.
        option: the option that names it, in front of what goes wrong.
        hint: what helps where there is no such file; without one, a mistake is looked for.

    Raises:
        Unusable: there is none, or it is not executable.

    """
    found = list(_executables(name, cwd, path))
    if len(found) == 1:  # of several, the kernel's refusal of one leads to the next
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
    from .program_file import wrong_first_line  # as most jobs do without

    if why := wrong_first_line(name, file, cwd, path):
        raise Unusable(f"{option}{name}: {why}", NOT_EXECUTABLE)


def refused(name: str, cwd: str, path: str, code: int) -> Unusable:
    """Return the error for a command, or a working directory, that the kernel has refused.

    Args:
        name: of it.
        cwd: the working directory.
        path: PATH.
        code: the number of the kernel's error.

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
    """Whether a Python program mentions jax; one that does not may need none."""
    with open(path, "rb") as source:
        return b"jax" in source.read(1 << 20)


def has_jax(python: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Whether this interpreter finds jax; it is started only if its folder does not tell.

    Raises:
        OSError: it cannot be run.

    """
    if _own_jax(python):
        return True
    return _found_jax(python, cwd, environ) is not None


def jax_version(python: str, cwd: str, environ: Mapping[str, str]) -> str:
    """Return the version of the jax that an interpreter finds, without importing it.

    Args:
        python: its path.
        cwd: where to start it, if its folder does not tell.
        environ: of the ranks.

    Returns:
        the version; "" if it is not known.

    """
    # Of an environment of venv's its own packages come first, unless a variable says otherwise.
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
    """Return the file of jax, as an interpreter says; "" if it takes too long, None if it has none.

    Raises:
        OSError: it cannot be run.

    """
    import subprocess

    try:
        check = [python, "-c", _FINDS_JAX]
        done = subprocess.run(check, capture_output=True, cwd=cwd, env=environ, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        return ""  # a slow disk: the rank will see
    if done.returncode != 0:
        return None
    return done.stdout.decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2]


def _own_jax(python: str) -> str:
    """Return the file of jax among the own packages of an environment of venv's or conda's, or "".

    Args:
        python: of the environment.

    """
    prefix = os.path.dirname(os.path.dirname(python))
    if not any(os.path.exists(os.path.join(prefix, mark)) for mark in ("pyvenv.cfg", "conda-meta")):
        return ""  # its Python may not look below its own folder, or there is another one
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

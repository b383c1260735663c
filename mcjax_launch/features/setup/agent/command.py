"""The command as the host's shell runs it, and what it has done to the environment."""

from __future__ import annotations

import os
import re

from ....machine import own_paths
from ....machine.interpreter import Unusable, find_executable
from ....machine.system import list_names, read_system_text
from ....wire.exit_status import NOT_EXECUTABLE

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Changes = dict[str, "str | None"]

# Variables of the shell itself; PS1 is what a venv's `activate` shows there.
_SHELLS_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "PS1"})
# Beginning of the names of the launcher's variables, of which a process may get some at its start.
_OURS = "MCJAX_"
# Where the installers of uv, pipx and poetry put commands; only a login adds it to PATH.
_USERS_COMMANDS = "~/.local/bin"
_OUTPUT = re.compile(r">[>|]?\s*[^\s;&|]+")
_SEPARATORS = re.compile(r"[\s;&|()<>'\"=`]+")
# Runs COMMAND after the files of $4..., and saves the variables in FILE: at its end, wherever that
# is, unless it has replaced the shell.
_SCRIPT = r"""
_mcjax_command=$1 _mcjax_env=$2 _mcjax_file=$3 _mcjax_saved=
shift 3
_mcjax_save() {
    [ -n "$_mcjax_saved" ] || "$_mcjax_env" -0 > "$_mcjax_file"
    _mcjax_saved=1
}
for _mcjax_init do . "$_mcjax_init"; done
set --
trap _mcjax_save EXIT
eval "$_mcjax_command"
_mcjax_status=$?
_mcjax_save
exit $_mcjax_status
"""
_NAME = "--setup"


def list_words(command: str) -> list[str]:
    """Return the words of a command, without the shell's own characters, and files for output."""
    return [word for word in _SEPARATORS.split(_OUTPUT.sub(" ", command)) if word]


def make_environ(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the command: a host's own, and those that the user has given."""
    found = {**environ, **given}
    folder = os.path.expanduser(_USERS_COMMANDS)
    folders = found.get("PATH", os.defpath).split(os.pathsep)
    if "PATH" not in given and folder not in folders and os.path.isdir(folder):
        found["PATH"] = os.pathsep.join([*folders, folder])
    return found


def make_argv(command: str, environ: Mapping[str, str], file: str) -> list[str]:
    """Return the words that run a command, and save its variables in a file.

    Args:
        command: the command.
        environ: variables of the command.
        file: path of the file.

    """
    path = environ.get("PATH", os.defpath)
    shell = find_executable("bash", "", path) or "/bin/sh"
    env = find_executable("env", "", path) or "/usr/bin/env"
    start = list_start_files(command, environ)
    return [shell, "-c", _SCRIPT, _NAME, command, env, file, *start]


def read_changes(file: str, before: Mapping[str, str]) -> Changes:
    """Return the changed variables, with None for each removed variable.

    They are {} if there is no such file: another program has replaced the shell.
    """
    try:
        with open(file, "rb") as saved:
            pairs = [os.fsdecode(pair).partition("=") for pair in saved.read().split(b"\0")]
        os.unlink(file)
    except OSError:
        return {}
    after = {name: value for name, equals, value in pairs if equals}
    known = (before.keys() | after.keys()) - _SHELLS_OWN
    names = [name for name in known if not name.startswith(_OURS)]
    return {name: after.get(name) for name in names if before.get(name) != after.get(name)}


# --- shell functions ---
# A shell without a login and a terminal reads no start-up file, so it knows neither `module` nor
# `conda activate`. Those files are not read as a whole: they may set PATH anew, print, or ask.

_PROFILES = "/etc/profile.d"
_MODULES = (
    *("/usr/share/modules/init/sh", "/usr/share/lmod/lmod/init/sh"),
    *("/usr/local/Modules/init/sh", "/opt/modules/init/sh", "/opt/lmod/lmod/init/sh"),
)
_STARTUP = ("~/.bashrc", "~/.bash_profile", "~/.profile", "~/.zshrc")
_CONDA_NAMES = ("miniconda3", "miniforge3", "mambaforge", "anaconda3", "conda")
_CONDA = tuple(f"{base}/{name}" for base in ("~", "/opt", "/usr/local") for name in _CONDA_NAMES)
# As `conda init` and `mamba init` write it.
_CONDA_HOOK = re.compile(r"'([^'\n]+)/bin/conda' ['\"]?shell\.")


def list_start_files(command: str, environ: Mapping[str, str]) -> list[str]:
    """Return the files that define the shell functions of a command: `module`, `conda`, `mamba`."""
    words, found = set(list_words(command)), []
    if words & {"module", "ml"} and "BASH_FUNC_module%%" not in environ:
        found += _list_module_files(environ)
    if words & {"conda", "mamba"}:
        found += _list_conda_files(environ)
    return found


def _list_module_files(environ: Mapping[str, str]) -> list[str]:
    """Return the files by which a login shell gets `module`; else a usual one, if it exists."""
    given = os.path.join(environ.get("MODULESHOME", os.devnull), "init", "sh")
    if os.path.isfile(given):
        return [given]
    names = [name for name in list_names(_PROFILES) if name.endswith(".sh")]
    profiles = [os.path.join(_PROFILES, name) for name in names]
    found = [
        path for path in profiles if re.search("module|lmod", read_system_text(path), re.IGNORECASE)
    ]
    return found or [path for path in _MODULES if os.path.isfile(path)][:1]


def _list_conda_files(environ: Mapping[str, str]) -> list[str]:
    """Return the files of the first conda that the variables, PATH or start-up files name."""
    for folder in _iterate_condas(environ):
        scripts = [
            os.path.join(folder, "etc/profile.d", f"{name}.sh") for name in ("conda", "mamba")
        ]
        if os.path.isfile(scripts[0]):
            return [script for script in scripts if os.path.isfile(script)]
    return []


def _iterate_condas(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield folders in which a conda may be installed, the most likely first."""
    named = environ.get("CONDA_EXE"), find_executable("conda", "", environ.get("PATH", os.defpath))
    for path in filter(None, named):
        yield os.path.dirname(os.path.dirname(os.path.realpath(path)))
    for file in map(os.path.expanduser, _STARTUP):
        yield from _CONDA_HOOK.findall(read_system_text(file))
    yield from map(os.path.expanduser, _CONDA)


# --- the ranks' Python ---


def find_chosen_python(
    command: str, folder: str, before: Mapping[str, str], after: Mapping[str, str]
) -> str:
    """Return the Python that a command has chosen: by PATH, or as uv's; "" if it has chosen none.

    Args:
        command: the command.
        folder: its folder.
        before, after: variables before the command and after it.

    Raises:
        Unusable: other users control uv's environment; nobody has named it.

    """
    for name in ("python", "python3"):
        found = find_executable(name, "", after.get("PATH", os.defpath))
        if found and found != find_executable(name, "", before.get("PATH", os.defpath)):
            return found
    own = os.path.join(folder, ".venv", "bin", "python")
    if "uv" not in list_words(command) or not os.access(own, os.X_OK):
        return ""
    if why := own_paths.explain_distrust(os.path.dirname(own)):
        raise Unusable(
            f"--setup does not choose {own}: {why}; name it with --python", NOT_EXECUTABLE
        )
    return own


def list_python_names(words: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return names of Pythons; a path that is not absolute leads from a folder."""
    return tuple(
        os.path.join(folder, word) if os.sep in word and word[0] != "~" else word for word in words
    )

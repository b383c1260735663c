"""Checks of PROGRAM, its arguments and --wrap's commands, before the ranks are started."""

import functools
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import TypeVar

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import group_ranks_by_host
from mcjax_launch.machine.interpreter import (
    Unusable,
    check_python_file,
    find_command,
    suggest_cure,
)
from mcjax_launch.machine.system import list_names, read_regular_file
from mcjax_launch.options.wrappers import list_commands
from mcjax_launch.wire.exit_status import NOT_FOUND

# --- modules ---

_MOST_S = 8.0
# Our package in ranks, which exists nowhere until they start.
_OF_RANKS = "_mcjax_launch"
_FINDS = (
    # What this needs itself is not imported from the current folder.
    "import sys; path = sys.path[:]; sys.path.pop(0); import importlib.util as u; "
    "sys.path[:] = path; s = u.find_spec(sys.argv[1]); s or sys.exit(1); "
    "print(*(s.submodule_search_locations or ()), sep='\\n')"
)


def check_module(name: str, python: str, cwd: str, environ: Mapping[str, str]) -> None:
    """Check that a module exists and can be run, without importing the user's code.

    A Python process is started only if working directory and PYTHONPATH lack the module.

    Args:
        name: name of the module.
        python: interpreter of the ranks.
        cwd: working directory of the ranks.
        environ: variables of the ranks.

    Raises:
        Unusable: Python would not find the module, or cannot run it.

    """
    top, *parts = name.split(".")
    if top == _OF_RANKS:
        return
    own = [cwd, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    spec = PathFinder.find_spec(top, own)
    if spec is not None and spec.loader is not None:
        places = _list_folders(spec)
    else:  # Python prefers a package elsewhere to a folder without __init__.py
        found = _find_package_folders(top, python, cwd, environ)
        if found is None:
            return
        if isinstance(found, int):
            raise Unusable(
                f"-m {name}: no such module in {cwd} or of {python}{_suggest_module(top, own)}",
                NOT_FOUND,
            )
        places = found
    parent = top
    for part in parts:
        if not places:
            raise Unusable(f"-m {name}: {parent} is a module, not a package", NOT_FOUND)
        if _extends_itself(places):
            return
        spec = PathFinder.find_spec(part, places)
        if spec is None:
            where = f"in {places[0]}{_suggest_module(part, places, f'{parent}.')}"
            raise Unusable(f"-m {name}: no such module {where}", NOT_FOUND)
        parent, places = f"{parent}.{part}", _list_folders(spec)
    if places and not _extends_itself(places) and PathFinder.find_spec("__main__", places) is None:
        example = _suggest_module("main", places, f"{parent}.") or "; name a module in it"
        raise Unusable(f"-m {name}: is a package without a __main__.py{example}", NOT_FOUND)


def _list_folders(spec: ModuleSpec) -> list[str]:
    return list(spec.submodule_search_locations or ())


def _find_package_folders(
    name: str, python: str, cwd: str, environ: Mapping[str, str]
) -> "list[str] | int | None":
    """Return a package's folders, as a Python process finds them; 1 if none; None if unknown."""
    import subprocess

    try:
        done = subprocess.run(
            [python, "-c", _FINDS, name],
            capture_output=True,
            cwd=cwd,
            env=environ,
            timeout=_MOST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return done.returncode if done.returncode == 1 and not done.stderr else None
    return os.fsdecode(done.stdout).split()


def _extends_itself(places: Iterable[str]) -> bool:
    """Return whether a package may find its modules in other folders too."""
    for place in places:
        try:
            with open(os.path.join(place, "__init__.py"), "rb") as file:
                text = file.read()
        except OSError:
            continue
        if b"__path__" in text or b"sys.modules" in text:
            return True
    return False


def _suggest_module(name: str, places: Sequence[str], parent: str = "") -> str:
    """Return "; did you mean ...?" with a similarly named module in the folders; "" if none."""
    import difflib

    known = [entry.removesuffix(".py") for place in places for entry in list_names(place)]
    near = difflib.get_close_matches(name, filter(str.isidentifier, known), 1, 0.75)
    return f"; did you mean -m {parent}{near[0]}?" if near else ""


# --- PROGRAM ---

T = TypeVar("T")


def check_program(job: Job, hosts: Sequence[Host]) -> None:
    """Check that a rank on this machine will find PROGRAM, and the commands of --wrap.

    Args:
        job: job with ranks on this machine.
        hosts: hosts of the job.

    Raises:
        LaunchError: a file or command does not exist, or cannot be run or read.

    """
    name = job.program[0]
    path = dict(job.env).get("PATH", os.environ.get("PATH", os.defpath))
    of_hosts = group_ranks_by_host(job, hosts) if job.wrappers else {}
    here = [rank for host, ranks in of_hosts.items() if host.is_local for rank in ranks]
    for wrapper in list_commands(job.wrappers, here):
        run_check(functools.partial(find_command, wrapper, job.chdir, path, "--wrap "))
    if not job.is_python:
        run_check(lambda: find_command(name, job.chdir, path))
    elif not job.module:
        run_check(lambda: check_python_file(name, job.chdir))
    else:
        environ = {**os.environ, **dict(job.env)}
        run_check(lambda: check_module(name, job.python, job.chdir, environ))


def advise_missing_program(program: Sequence[str], module: bool, sync: Sequence[str]) -> str:
    """Return advice to append to a remote host's error that PROGRAM's file is missing; or "".

    Args:
        program: PROGRAM and its arguments.
        module: True if PROGRAM is a module.
        sync: paths of --sync.

    """
    name = program[0]
    if module or not (name.endswith(".py") or os.sep in name):
        return ""
    path = os.path.abspath(name)
    if not os.path.isfile(path):
        return f", nor here in {os.path.dirname(path)}{suggest_cure(name, path)}"
    if os.path.isabs(name):  # a synced file has another place
        return "; copy it there"
    return f"; add --sync {name}" if sync else f"; copy it there, or add --sync {name}"


# Basenames of commands that run the file in their first argument, without a version.
_INTERPRETERS = ("python", "sh", "bash", "dash", "zsh", "fish")
#: Names of standard input.
STDIN = ("-", "/dev/stdin", "/dev/fd/0")


def is_interpreter(command: str) -> bool:
    """Return whether a command runs the file that its first argument names."""
    return os.path.basename(command).rstrip(".0123456789") in _INTERPRETERS


def check_pipe(job: Job) -> None:
    """Refuse PROGRAM in a pipe, as a shell's <(command), if it is to be read more than once.

    Raises:
        LaunchError: it would be read by several ranks, or by several attempts.

    """
    if job.num_processes > 1:
        refuse_pipe(job, "with -n 1")
    elif job.max_restarts:
        refuse_pipe(job, "without --max-restarts")


def refuse_pipe(job: Job, cure: str) -> None:
    """Refuse PROGRAM in a pipe; run it as `cure` says.

    Raises:
        LaunchError: it is in a pipe.

    """
    name, *arguments = job.program
    if not job.is_python and is_interpreter(name):
        name = next((word for word in arguments if not word.startswith("-")), name)
    if not job.module and name not in STDIN and _is_pipe(os.path.join(job.chdir, name)):
        raise LaunchError(
            f"{name}: is a pipe, which serves one rank, once: save the program to a file, or run "
            f"it {cure}"
        )


def _is_pipe(path: str) -> bool:
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


_MOST_BYTES = 1 << 22


def read_source(path: str) -> bytes:
    """Return the first 4 MiB of a program's file; b"" if it cannot be read."""
    try:
        return read_regular_file(path, _MOST_BYTES)
    except OSError:
        return b""


def run_check(check: Callable[[], T]) -> T:
    """Return the result of `check()`, with its Unusable error turned into a LaunchError.

    Raises:
        LaunchError: the check raised Unusable.

    """
    try:
        return check()
    except Unusable as error:
        raise LaunchError(str(error), error.status) from None

"""Choice of the ranks' Python: from --python, the active environment, or PATH."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import WITHOUT_JAX, Job, is_python
from mcjax_launch.machine import interpreter
from mcjax_launch.machine.interpreter import find_command, find_executable, is_importable
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.request.program import run_check


class RanksPython(NamedTuple):
    """The Python of the ranks: values of the same fields of a Job.

    `python` is a name instead of a path if each host searches for it.
    """

    python: str
    python_origin: str = ""
    python_without_jax: str = WITHOUT_JAX


def find(
    options: Options, hosts: Sequence[Host], environ: Mapping[str, str], here: bool
) -> RanksPython:
    """Return the Python that --python names; if it is not given, choose a Python.

    Args:
        options: options of the job.
        hosts: hosts of the job.
        environ: variables of this process.
        here: True if ranks run on this machine.

    Raises:
        LaunchError: there is no Python of this name.

    """
    if options.python is None:
        if is_python(options.program, options.module):
            return _choose_default(environ)
        return RanksPython(sys.executable)  # only for the agents of other hosts
    if not here or declared.find_first(options):  # which may make it
        return RanksPython(options.python)
    elsewhere = not all(host.is_local for host in hosts)
    return _find_named(options.python, environ, elsewhere=elsewhere)


def describe(job: Job, hosts: Sequence[Host]) -> str:
    """Return a line for -v: the ranks' Python, and the reason for this choice."""
    origin = f" ({job.python_origin})" if job.python_origin else ""
    text = f"the ranks' Python: {job.python}{origin}"
    if (first := declared.find_first(job)) and not job.python_given:
        return f"{text}, unless --{first} chooses another"
    elsewhere = not job.python_given and not all(host.is_local for host in hosts)
    return f"{text}; python3 on hosts that do not have it" if elsewhere else text


def _find_named(given: str, environ: Mapping[str, str], *, elsewhere: bool) -> RanksPython:
    """Find the Python that --python names, a path or a command in PATH.

    Raises:
        LaunchError: there is no such Python.

    """
    name = os.path.expanduser(given)
    path = os.pathsep.join(_list_path_folders(environ))
    found = run_check(lambda: find_command(name, os.getcwd(), path, "--python "))
    own_on_each_host = given.startswith("~") or os.sep not in given
    return RanksPython(given if elsewhere and own_on_each_host else found)


def _choose_default(environ: Mapping[str, str]) -> RanksPython:
    """Choose the ranks' Python if --python is not given.

    It is VIRTUAL_ENV's; without VIRTUAL_ENV, the launcher's if it has jax, else the first in
    PATH that has jax. If no Python has jax, it is the launcher's.
    """
    active = _find_in_virtual_env(environ)
    own, has_jax = sys.executable, is_importable("jax")
    if active is not None and interpreter.make_environment_key(
        active
    ) != interpreter.make_environment_key(own):
        return RanksPython(active, "VIRTUAL_ENV's", f"(VIRTUAL_ENV's) {WITHOUT_JAX}")
    if has_jax or active is not None:
        return RanksPython(own, "the launcher's own", "" if has_jax else WITHOUT_JAX)
    others = interpreter.find_in_folders(_list_path_folders(environ), without=own)
    with_jax = next((python for python in others if _has_jax(python, environ)), None)
    if with_jax is not None:
        return RanksPython(with_jax, "the first in PATH that has jax", "")
    return RanksPython(
        own,
        "the launcher's own; no Python in PATH has jax",
        "(the launcher's own) has no jax, nor has any Python in PATH: activate the environment "
        "that has it, or name its Python with --python",
    )


def _find_in_virtual_env(environ: Mapping[str, str]) -> str | None:
    """Return the Python of VIRTUAL_ENV; None if that is not set, or has no Python."""
    folder = environ.get("VIRTUAL_ENV")
    return find_executable("python", "", os.path.join(folder, "bin")) if folder else None


def _list_path_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the folders of PATH; if the launcher's Python has no jax, its folder is the last."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    if is_importable("jax"):
        return folders
    own = os.path.realpath(os.path.dirname(sys.executable))
    return sorted(folders, key=lambda folder: os.path.realpath(folder) == own)


def _has_jax(python: str, environ: Mapping[str, str]) -> bool:
    try:
        return interpreter.has_jax(python, os.sep, environ)
    except OSError:
        return False

"""The ranks' Python on this machine: the user's choice, or the one that a shell here would use."""

import os
import sys
from collections.abc import Mapping

from mcjax_launch.job.job import WITHOUT_JAX
from mcjax_launch.kernel.wire import interpreter
from mcjax_launch.kernel.wire.program_check import executable, find_command
from mcjax_launch.request.program import checked
from mcjax_launch.request.this_machine import RanksPython


def named(given: str, environ: Mapping[str, str], *, elsewhere: bool) -> RanksPython:
    """The Python that --python names.

    Args:
        given: a path, or a command in PATH.
        environ: of this process.
        elsewhere: other hosts have ranks too.

    Raises:
        LaunchError: there is no such command here, or it is not executable.

    """
    name = os.path.expanduser(given)
    path = os.pathsep.join(_users_path(environ))
    found = checked(lambda: find_command(name, os.getcwd(), path, "--python "))
    own_on_each_host = given.startswith("~") or os.sep not in given
    return RanksPython(given if elsewhere and own_on_each_host else found)


def default(environ: Mapping[str, str]) -> RanksPython:
    """The Python of the active environment, else one that has jax; `environ` is this process's."""
    active = _of_virtual_env(environ)
    own, has_jax = sys.executable, _is_here("jax")
    if active is not None and interpreter.environment(active) != interpreter.environment(own):
        return RanksPython(active, "VIRTUAL_ENV's", f"(VIRTUAL_ENV's) {WITHOUT_JAX}")
    if has_jax or active is not None:
        return RanksPython(own, "the launcher's own", "" if has_jax else WITHOUT_JAX)
    others = interpreter.in_folders(_users_path(environ), without=own)
    with_jax = next((python for python in others if _has_jax(python, environ)), None)
    if with_jax is not None:
        return RanksPython(with_jax, "the first in PATH that has jax", "")
    return RanksPython(
        own,
        "the launcher's own; no Python in PATH has jax",
        "(the launcher's own) has no jax, nor has any Python in PATH: activate the environment "
        "that has it, or name its Python with --python",
    )


def _of_virtual_env(environ: Mapping[str, str]) -> str | None:
    """The Python of the active environment; None if there is none, or it is gone."""
    folder = environ.get("VIRTUAL_ENV")
    return executable("python", "", os.path.join(folder, "bin")) if folder else None


def _users_path(environ: Mapping[str, str]) -> list[str]:
    """The folders of PATH, the launcher's own last if it has no jax: uvx puts that first."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    if _is_here("jax"):
        return folders
    own = os.path.realpath(os.path.dirname(sys.executable))
    return sorted(folders, key=lambda folder: os.path.realpath(folder) == own)


def _has_jax(python: str, environ: Mapping[str, str]) -> bool:
    try:
        return interpreter.has_jax(python, os.sep, environ)
    except OSError:
        return False


def _is_here(name: str) -> bool:
    """Whether this process could import a package, which importlib.util would be slower to say."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    specs = (finder.find_spec(name, None) for finder in finders)
    # A folder of this name without __init__.py, which is no package of anybody's, has no origin.
    return any(spec.origin for spec in specs if spec is not None)

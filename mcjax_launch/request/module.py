"""PROGRAM as a module (-m): whether the ranks' Python would find it on this machine."""

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder

from mcjax_launch.kernel.wire.exit_status import NOT_FOUND
from mcjax_launch.kernel.wire.program_check import Unusable

_MOST_S = 8.0
# The package that ranks have of us, which is nowhere until they start.
_OF_RANKS = "_mcjax_launch"
_FINDS = (
    "import importlib.util as u, sys; s = u.find_spec(sys.argv[1]); s or sys.exit(1); "
    "print(*(s.submodule_search_locations or ()), sep='\\n')"
)


def check_module(name: str, python: str, cwd: str, environ: Mapping[str, str]) -> None:
    """Look for a module, without importing anything of the user's.

    Python is asked only where the module is not below the working directory or PYTHONPATH.

    Args:
        name: of the module.
        python: the ranks' interpreter.
        cwd: their working directory.
        environ: of the ranks.

    Raises:
        Unusable: Python would not find it, or cannot run it.

    """
    top, *parts = name.split(".")
    if top == _OF_RANKS:
        return
    own = [cwd, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    spec = PathFinder.find_spec(top, own)
    if spec is not None and spec.loader is not None:
        places = _places(spec)
    else:  # a folder without __init__.py gives way to a package elsewhere
        found = _asked(top, python, cwd, environ)
        if found is None:
            return
        if isinstance(found, int):
            raise Unusable(
                f"-m {name}: no such module in {cwd} or of {python}{_near(top, own)}", NOT_FOUND
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
            where = f"in {places[0]}{_near(part, places, f'{parent}.')}"
            raise Unusable(f"-m {name}: no such module {where}", NOT_FOUND)
        parent, places = f"{parent}.{part}", _places(spec)
    if places and not _extends_itself(places) and PathFinder.find_spec("__main__", places) is None:
        example = _near("main", places, f"{parent}.") or "; name a module in it"
        raise Unusable(f"-m {name}: is a package without a __main__.py{example}", NOT_FOUND)


def _places(spec: ModuleSpec) -> list[str]:
    return list(spec.submodule_search_locations or ())


def _asked(
    name: str, python: str, cwd: str, environ: Mapping[str, str]
) -> "list[str] | int | None":
    """Where Python looks for what is in this package; 1: there is none; None: unknown."""
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
    """Whether a package may find its modules in places of its own."""
    for place in places:
        try:
            with open(os.path.join(place, "__init__.py"), "rb") as file:
                text = file.read()
        except OSError:
            continue
        if b"__path__" in text or b"sys.modules" in text:
            return True
    return False


def _near(name: str, places: Sequence[str], parent: str = "") -> str:
    """A module of nearly this name in these folders, as a question."""
    import difflib

    known = []
    for place in places:
        if os.path.isdir(place):
            known += [entry.removesuffix(".py") for entry in os.listdir(place)]
    near = difflib.get_close_matches(name, [one for one in known if one.isidentifier()], 1, 0.75)
    return f"; did you mean -m {parent}{near[0]}?" if near else ""

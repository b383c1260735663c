"""mcjax-launch: starts, watches and ends the processes of multi-controller JAX programs.

As a command: see `mcjax-launch --help`. In Python: `launch` runs a program, `run` a function, and a
`session` keeps ranks for more of both; see docs/python.md. What is here is imported when it is
used: every agent and every rank passes by.
"""

# ruff: noqa: F403, F405
from .wire.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mcjax_launch.features.session.client import *
    from mcjax_launch.python import *

__all__ = [
    "CallFailed",
    "Event",
    "JobFailed",
    "LaunchError",
    "Line",
    "RankError",
    "RankResult",
    "RankTraceback",
    "Repr",
    "Result",
    "RootCause",
    "RunningJob",
    "Session",
    "__version__",
    "launch",
    "run",
    "session",
    "start",
]

_OF_CALLS = ("CallFailed", "RankError", "RankTraceback", "Repr", "Session", "run", "session")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home: object = import_module("mcjax_launch.python")
    if name in _OF_CALLS:
        from mcjax_launch.options import features

        home = features.load("client")
    found = globals()[name] = getattr(home, name)
    return found


def load_ipython_extension(ipython: "Any") -> None:
    """Register the magics `%mcjax` and `%%mcjax`, for `%load_ext mcjax_launch`."""
    from mcjax_launch.options import features

    ipython.register_magics(features.load("magics").RankMagics)


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})

"""Ranks that make calls of a Python program: `run`, `session`, and their errors."""

from mcjax_launch.features.session.client.calls import Repr
from mcjax_launch.features.session.client.progress import CallFailed, RankError
from mcjax_launch.features.session.client.run import RankTraceback, run
from mcjax_launch.features.session.client.session import Session, session

__all__ = ["CallFailed", "RankError", "RankTraceback", "Repr", "Session", "run", "session"]

for _name in __all__:  # as users write them, in tracebacks too
    globals()[_name].__module__ = "mcjax_launch"

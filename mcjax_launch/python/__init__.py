"""Jobs from Python programs: `launch`, `start`, `run`, `session`, and their results."""

from mcjax_launch.errors import LaunchError
from mcjax_launch.python.calls import Repr
from mcjax_launch.python.job import RunningJob
from mcjax_launch.python.launching import RankTraceback, launch, run, start
from mcjax_launch.python.progress import CallFailed, RankError
from mcjax_launch.python.result import Event, JobFailed, Line, RankResult, Result, RootCause
from mcjax_launch.python.session import Session, session

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
    "launch",
    "run",
    "session",
    "start",
]

for _name in __all__:  # as users write them, in tracebacks too
    globals()[_name].__module__ = "mcjax_launch"

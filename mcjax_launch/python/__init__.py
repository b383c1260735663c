"""Jobs from Python programs: `launch`, `start`, `run`, `session`, and their results."""

from mcjax_launch.errors import LaunchError
from mcjax_launch.python.call_failed import CallFailed, RankError
from mcjax_launch.python.events import Event, Line
from mcjax_launch.python.function import RankTraceback, run, run_async
from mcjax_launch.python.job import RunningJob
from mcjax_launch.python.launching import launch, launch_async, start
from mcjax_launch.python.result import JobFailed, RankResult, Result, RootCause
from mcjax_launch.python.session import Session, session
from mcjax_launch.python.values import Repr

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
    "launch_async",
    "run",
    "run_async",
    "session",
    "start",
]

for _name in __all__:  # as users write them, in tracebacks too
    globals()[_name].__module__ = "mcjax_launch"

"""Jobs from Python programs: `launch` and `start`, and what they report."""

from mcjax_launch.errors import LaunchError
from mcjax_launch.python.job import RunningJob
from mcjax_launch.python.launching import launch, start
from mcjax_launch.python.result import Event, JobFailed, Line, RankResult, Result, RootCause

__all__ = [
    "Event",
    "JobFailed",
    "LaunchError",
    "Line",
    "RankResult",
    "Result",
    "RootCause",
    "RunningJob",
    "launch",
    "start",
]

for _name in __all__:  # as users write them, in tracebacks too
    globals()[_name].__module__ = "mcjax_launch"

"""Jobs from Python programs: `mcjax_launch.launch`, `start`, `run`, and their results."""

from mcjax_launch.api.events import Event, Line
from mcjax_launch.api.function import RankTraceback, run, run_async
from mcjax_launch.api.job import RunningJob
from mcjax_launch.api.launching import launch, launch_async, start
from mcjax_launch.api.result import JobFailed, RankResult, Result, RootCause
from mcjax_launch.errors import LaunchError

__all__ = [
    "Event",
    "JobFailed",
    "LaunchError",
    "Line",
    "RankResult",
    "RankTraceback",
    "Result",
    "RootCause",
    "RunningJob",
    "launch",
    "launch_async",
    "run",
    "run_async",
    "start",
]

for _name in __all__:  # as users write them, in tracebacks too
    globals()[_name].__module__ = "mcjax_launch"

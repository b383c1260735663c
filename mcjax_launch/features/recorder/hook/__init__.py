"""Recorder of calls of programs that span processes, by sys.monitoring (Python 3.12)."""

from __future__ import annotations

import os
import sys

from ....hook.part import RunRecorder
from ....wire import hook_environ
from ..messages import NotRecording, Recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ....wire.hook_messages import Program
    from .calls import Calls

# Ids of sys.monitoring that no kind of tool has by convention.
_TOOLS = (4, 3)


class ProgramRecorder(RunRecorder):
    """Part that begins to record when the process has joined the job."""

    _calls: Calls | None = None

    def on_join(self) -> None:
        """Begin to record; after another join, begin new sequences."""
        if self._calls is not None:
            self._calls.begin_anew()
            return
        try:
            self._calls = self._begin()
        except Exception as error:  # an unknown JAX, or a full disk
            self.link.send(NotRecording(repr(error)))

    def _begin(self) -> Calls | None:
        monitoring: Any = getattr(sys, "monitoring")  # noqa: B009, from Python 3.12 on
        users = {tool: monitoring.get_tool(tool) for tool in _TOOLS}
        tool = next((tool for tool, user in users.items() if user is None), None)
        if tool is None:
            tools = " and ".join(map(str, users.values()))
            self.link.send(NotRecording(f"{tools} use sys.monitoring"))
            return None
        from .calls import Calls
        from .sequences import SequenceFile

        folder = os.path.dirname(self.environ[hook_environ.SOCKET])
        file = SequenceFile(os.path.join(folder, f"programs.{os.getpid()}"), self.link)
        calls = Calls(file)
        self.link.send(Recording(file.path))
        calls.begin(tool)
        return calls

    def on_run(self, program: Program | None) -> None:
        """Record that this thread runs a program, with JAX's Python code."""
        if self._calls is not None:
            self._calls.on_run(program)

    def on_abandoned_run(self) -> None:
        """Record that this thread does not run its latest program: an exception prevents it."""
        if self._calls is not None:
            self._calls.on_abandoned_run()


PART = ProgramRecorder

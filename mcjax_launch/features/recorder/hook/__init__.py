"""Recorder of the programs that this process launches."""

from __future__ import annotations

import os

from ....hook.part import RankPart
from ....wire import hook_environ
from ..messages import NotRecording, Recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .launches import Launches
    from .programs import SpanningProgram


class ProgramRecorder(RankPart):
    """Part that begins to record when the process has joined the job."""

    _launches: Launches | None = None

    def on_join(self, *, is_alone: bool) -> None:
        """Begin to record; after another join, begin new sequences."""
        if is_alone:
            return
        if self._launches is not None:
            self._launches.begin_anew()
            return
        if self.environ.get(hook_environ.RECORD) == "0":
            self.link.send(NotRecording(f"{hook_environ.SWITCH}=0"))
            return
        try:
            from .launches import Launches
            from .sequences import SequenceFile

            folder = os.path.dirname(self.environ[hook_environ.SOCKET])
            file = SequenceFile(os.path.join(folder, f"programs.{os.getpid()}"), self.link)
            self._launches = Launches(file, self.link, compares_values=bool(self.asked))
            self.link.send(Recording(file.path))
        except Exception as error:  # an unknown JAX, or a full disk
            self._launches = None
            self.link.send(NotRecording(repr(error)))

    def describe(
        self, backend: Any, computation: Any, devices: Any, options: Any
    ) -> SpanningProgram | None:
        """Return a program that is about to be compiled if it spans processes; else None."""
        launches = self._launches
        return None if launches is None else launches.describe(backend, computation, devices)

    def on_compiled(self, program: SpanningProgram | None, executable: Any) -> None:
        """Record what an executable has been compiled from."""
        if self._launches is not None:
            self._launches.on_compiled(program, executable)


PART = ProgramRecorder

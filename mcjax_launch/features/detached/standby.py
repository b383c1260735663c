"""The launcher's side of a detached job: its folder, output, and connection to its starter."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached import record
from mcjax_launch.features.detached.folders import (
    OTHER,
    check_private,
    get_state_folder,
    remove_folder,
)
from mcjax_launch.features.detached.output import OutputFile
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.journal.facts import Planned
from mcjax_launch.journal.sink import Sink
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire.messages import Started

#: Its starter gets the launcher's stderr up to this byte, which says that all ranks run.
STARTED = b"\0"
_COLUMNS = 100


class KeptOutput(Sink):
    """Output of the launcher: the file, and stderr for its starter until all ranks run."""

    def __init__(self, loop: Loop, file: OutputFile) -> None:
        super().__init__(2, loop)
        self._file = file
        self._has_reader = True

    def watch(self, on_gone: Callable[[OSError | None], None]) -> None:
        super().watch(lambda error: on_gone(error) if self._has_reader else None)

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._file.write(b"".join(pieces))
        if self._has_reader:
            super().write(pieces)

    def count_columns(self) -> int:
        """Return the width for which output is rendered: no terminal reads it yet."""
        return _COLUMNS

    def release_starter(self) -> None:
        """Inform the starter that all ranks run; all further output is for the file alone."""
        super().write((STARTED,))
        self._has_reader = False
        self._file.redirect_stderr()


class Standby:
    """Stand-in for the terminal of a detached job; it reads the journal.

    Args:
        job_id: id of the job, whose folder exists.
        loop: event loop of the launcher.

    Attributes:
        output: target for all lines of the launcher and the ranks.

    Raises:
        LaunchError: the folder does not exist or cannot be written.

    """

    def __init__(self, job_id: str, loop: Loop) -> None:
        self.job_id = job_id
        self._folder = os.path.join(get_state_folder(), job_id)
        self._has_started = False
        self._waits_for: set[int] = set()
        try:
            check_private(self._folder)
            self._lock = record.lock(self._folder)
            record.reserve_end(self._folder)
            self._file = OutputFile(self._folder)
            self.output = KeptOutput(loop, self._file)
        except OSError as error:
            raise LaunchError(f"--detach: {self._folder}: {error.strerror}: {OTHER}") from None

    def describe(self, program: Sequence[str], ranks: int, hosts: Sequence[str]) -> None:
        """Write the description of the job before it begins.

        Raises:
            LaunchError: the description cannot be written.

        """
        pid = os.getpid()
        host, boot = record.identify_machine()
        namespace, started = record.identify_process(pid)
        description = record.Description(
            id=self.job_id,
            program=tuple(program),
            host=host,
            boot=boot,
            pid=pid,
            ranks=ranks,
            hosts=tuple(hosts),
            since=round(time.time(), 3),
            namespace=namespace,
            started=started,
        )
        try:
            record.write_description(self._folder, description)
        except OSError as error:
            raise LaunchError(f"--detach: {self._folder}: {error.strerror}") from None

    def on_planned(self, plan: Planned, at: float) -> None:
        """Learn which ranks there are."""
        self._waits_for = set(plan.places)

    def on_started(self, started: Started, at: float) -> None:
        """Inform the starter once all ranks run."""
        self._waits_for.discard(started.rank)
        if not self._waits_for and not self._has_started:
            self._has_started = True
            self.output.release_starter()

    def on_job_outcome(self, outcome: JobOutcome, at: float) -> None:
        """Record with which exit status the job has ended, and a line that says how."""
        dropped = self._file.describe_dropped()
        end = record.JobEnd(outcome.status, outcome.message, time.time(), dropped)
        with contextlib.suppress(OSError):  # the disk is gone
            record.write_end(self._folder, end)

    def close(self) -> None:
        """Remove the folder if the job never began."""
        if not self._has_started:
            remove_folder(self._folder)

"""The launcher's side of a detached job: folder, events, and connection to its starter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from mcjax_launch.detached.event_files import EventFiles
from mcjax_launch.detached.folders import OTHER, check_private, get_state_folder, remove_folder
from mcjax_launch.detached.journal import Journal
from mcjax_launch.detached.record import (
    Description,
    StateFile,
    identify_machine,
    open_errors,
    shorten_hosts,
    write_description,
)
from mcjax_launch.detached.visitors import Visitors
from mcjax_launch.errors import LaunchError
from mcjax_launch.events.opening import EventsTarget
from mcjax_launch.events.sink import Sink, Target
from mcjax_launch.kernel.wire.loop import Loop

#: Its starter gets the launcher's stderr up to this byte, which says that all ranks run.
STARTED = b"\0"


class StarterOutput(Sink):
    """Stderr of the launcher, read by the process that started it until all ranks run.

    Args:
        loop: event loop of the launcher.

    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(2, loop)
        self._has_reader = True

    def watch(self, on_gone: Callable[[OSError | None], None]) -> None:
        super().watch(lambda error: on_gone(error) if self._has_reader else None)

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        if self._has_reader:
            super().write(pieces)

    def end(self, errors: int) -> None:
        """Notify the starter that all ranks run; redirect stderr to descriptor `errors`."""
        if self._has_reader:
            self.write((STARTED,))
            self._has_reader = False
            os.dup2(errors, 2)


class Standby:
    """Launcher's objects for a detached job.

    Args:
        job_id: id of the job, whose folder exists.
        target: target of --events; None without that option.

    Attributes:
        visitors: attached terminals; None until the launcher has an event loop.

    Raises:
        LaunchError: the folder does not exist or cannot be written.

    """

    def __init__(self, job_id: str, target: EventsTarget | None) -> None:
        self.job_id = job_id
        self.visitors: Visitors | None = None
        self._folder = os.path.join(get_state_folder(), job_id)
        try:
            check_private(self._folder)
            self._state = StateFile(self._folder)
        except OSError as error:
            raise LaunchError(f"--detach: {self._folder}: {error.strerror}: {OTHER}") from None
        self._files = EventFiles(self._folder, self._record_disk_full)
        self.journal = Journal(self._files, self._record_start, self._record_end, target)
        self._output: StarterOutput | None = None

    def describe(self, program: Sequence[str], ranks: int, hosts: Sequence[str]) -> None:
        """Write the description of the job before it begins.

        Raises:
            LaunchError: the description cannot be written.

        """
        host, boot = identify_machine()
        try:
            write_description(
                self._folder,
                Description(
                    self.job_id,
                    tuple(program),
                    host,
                    boot,
                    os.getpid(),
                    ranks,
                    shorten_hosts(hosts),
                    round(time.time(), 3),
                ),
            )
        except OSError as error:
            raise LaunchError(f"--detach: {self._folder}: {error.strerror}") from None

    def open(self, loop: Loop, stop: Callable[[], object]) -> Target:
        """Accept terminals from now on; return the target for the launcher's lines.

        Raises:
            LaunchError: no socket can be made in the job's folder.

        """
        try:
            self.visitors = Visitors(
                self._folder, loop, stop, lambda text: self._state.change(waits=text)
            )
        except OSError as error:
            raise LaunchError(
                f"--detach: no socket can be made in {self._folder}: {error.strerror}: set "
                "XDG_STATE_HOME to a folder on another file system"
            ) from None
        self._files.on_written = self.visitors.notify_of_events
        self._output = StarterOutput(loop)
        return self._output

    def _record_start(self) -> None:
        if self._output is not None:
            fd = open_errors(self._folder)
            self._output.end(fd)
            os.close(fd)

    def _record_end(self, exit_status: int, message: str) -> None:
        self._state.change(lost=self._files.lost)
        self._state.end(exit_status, message)

    def _record_disk_full(self, is_full: bool) -> None:
        lost = self._files.lost
        self._state.change(full=is_full, lost=lost)
        if self.visitors is not None:
            self.visitors.notify_of_disk(is_full=is_full)
        if not is_full:
            self.journal.note(f"the disk was full: {lost} bytes of events are not kept", "say")

    def close(self) -> None:
        """Close the connections to terminals; remove the folder if the job never began."""
        if self.visitors is not None:
            self.visitors.close()
        self._files.close()
        if not self.journal.has_started:
            remove_folder(self._folder)

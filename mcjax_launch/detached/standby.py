"""The launcher's side of a detached job: folder, output, and connection to its starter."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence

from mcjax_launch.detached.folders import OTHER, check_private, get_state_folder, remove_folder
from mcjax_launch.detached.output_files import OutputFiles
from mcjax_launch.detached.record import (
    Description,
    StateFile,
    identify_machine,
    shorten_hosts,
    write_description,
    write_rows,
)
from mcjax_launch.detached.visitors import Visitors
from mcjax_launch.errors import LaunchError
from mcjax_launch.events.sink import Sink
from mcjax_launch.machine.loop import Loop
from mcjax_launch.wire import exit_status

#: Its starter gets the launcher's stderr up to this byte, which says that all ranks run.
STARTED = b"\0"


class KeptOutput(Sink):
    """Output of the launcher: files, and stderr for its starter until all ranks run.

    Args:
        loop: event loop of the launcher.
        files: files that keep all output.

    """

    def __init__(self, loop: Loop, files: OutputFiles) -> None:
        super().__init__(2, loop)
        self._files = files
        self._has_reader = True

    def watch(self, on_gone: Callable[[OSError | None], None]) -> None:
        super().watch(lambda error: on_gone(error) if self._has_reader else None)

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._files.write(pieces)
        if self._has_reader:
            super().write(pieces)

    def release_starter(self) -> None:
        """Inform the starter that all ranks run; all further output is for the files alone."""
        super().write((STARTED,))
        self._has_reader = False
        self._files.redirect_stderr()


class Standby:
    """Launcher's objects for a detached job.

    Args:
        job_id: id of the job, whose folder exists.
        loop: event loop of the launcher.
        stop: called when `--stop` asks to end the job.

    Attributes:
        output: target for all lines of the launcher and the ranks.
        visitors: attached terminals.

    Raises:
        LaunchError: the folder does not exist or cannot be written, or can hold no socket.

    """

    def __init__(self, job_id: str, loop: Loop, stop: Callable[[], object]) -> None:
        self.job_id = job_id
        self._folder = os.path.join(get_state_folder(), job_id)
        self._has_started = False
        try:
            check_private(self._folder)
            self._state = StateFile(self._folder)
        except OSError as error:
            raise LaunchError(f"--detach: {self._folder}: {error.strerror}: {OTHER}") from None
        try:
            self.visitors = Visitors(self._folder, loop, stop)
        except OSError as error:
            raise LaunchError(
                f"--detach: no socket can be made in {self._folder}: {error.strerror}: set "
                "XDG_STATE_HOME to a folder on another file system"
            ) from None
        self._files = OutputFiles(self._folder, self._record_disk_full)
        self._files.on_written = self.visitors.notify_of_output
        self.output = KeptOutput(loop, self._files)

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

    def record_start(self) -> None:
        """Inform the starter that all ranks run, unless it was informed before."""
        if not self._has_started:
            self._has_started = True
            self.output.release_starter()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record how the job has ended if the body of the `with` statement raises an exception."""
        try:
            yield
        except LaunchError as error:
            self.record_end(error.status, str(error))
            raise
        except Exception as error:
            self.record_end(exit_status.INTERNAL_ERROR, f"internal error: {error!r}")
            raise

    def record_end(self, status: int, message: str) -> None:
        """Record with which exit status the job has ended, and a line that says how."""
        self._state.change(lost=self._files.lost)
        self._state.end(status, message)

    def record_rows(self, name: str, rows: Sequence[object]) -> None:
        """Record what ranks do, "gpus" or "programs", for --jobs."""
        write_rows(self._folder, name, rows)

    def _record_disk_full(self, is_full: bool) -> None:
        self._state.change(full=is_full, lost=self._files.lost)
        self.visitors.notify_of_disk(is_full=is_full)

    def close(self) -> None:
        """Close the connections to terminals; remove the folder if the job never began."""
        self.visitors.close()
        self._files.close()
        if not self._has_started:
            remove_folder(self._folder)

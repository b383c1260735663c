"""--detach: a launcher without a terminal, and the command that starts it and waits for its ranks.

The command shows what the launcher writes to stderr until all ranks run, and prints the job's id.
If the command is gone before, the launcher ends the job, as with any reader of its stderr.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached.jobs import JobFolder, find_all_jobs, remove_folder
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.program_file import find_program, find_syntax_errors
from mcjax_launch.journal.attempt import JobOutcome
from mcjax_launch.journal.facts import Planned
from mcjax_launch.journal.opening import DESCRIPTOR, parse_descriptor
from mcjax_launch.journal.sink import Sink
from mcjax_launch.launcher.front import Front
from mcjax_launch.machine.loop import Loop
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.exit_status import ENDING
from mcjax_launch.wire.messages import Started
from mcjax_launch.wire.source_lines import format_path

_OPTION, _ITS_VARIABLE = "--detach", "MCJAX_DETACH"
_STARTED = b"\0"  # on the launcher's stderr: all ranks run
_MOST_READ = 4096
_DESCRIPTOR_PATH = re.compile("/dev/fd/([0-9]{1,9})")

# --- the command ---


def start(variable: str, options: Options, words: Sequence[str]) -> int:
    """Start a job that needs no terminal, print its id, and return the exit status.

    Args:
        variable: name of the launcher's variable with the job's id.
        options: checked options.
        words: words of the command line.

    Raises:
        LaunchError: no descriptor for events is open, or the launcher cannot be started.

    """
    find_all_jobs()  # those that ended long ago make room
    job_id = os.urandom(4).hex()
    reading, writing = os.pipe()
    try:
        launcher = _start_launcher({variable: job_id}, options, words, writing)
    except OSError as error:
        raise LaunchError(
            f"--detach: the launcher cannot be started: {error.strerror}", exit_status.FAILED
        ) from None
    os.close(writing)
    for signum in ENDING:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, lambda signum, _: launcher.send_signal(signum))
    while data := os.read(reading, _MOST_READ):
        text, started, _ = data.partition(_STARTED)
        _write(2, text)
        if started:
            _write(1, f"{job_id}\n".encode())
            return 0
    status = exit_status.compute_exit_status(launcher.wait())
    remove_folder(job_id)  # if it was killed
    return status or exit_status.FAILED


def _start_launcher(
    added: Mapping[str, str], options: Options, words: Sequence[str], stderr: int
) -> subprocess.Popen[bytes]:
    """Start a launcher like this process, in a new session and without a terminal."""
    own = len(words) - len(options.program)
    words = [*(word for word in words[:own] if word != _OPTION), *words[own:]]
    environ = {name: value for name, value in os.environ.items() if name != _ITS_VARIABLE}
    given = options.events or ""
    fds = [parse_descriptor(given)] if given.startswith(DESCRIPTOR) else []
    # A shell's <(command), among them PROGRAM itself.
    paths = [*options.program, *options.env_file]
    fds += [int(number[1]) for number in map(_DESCRIPTOR_PATH.fullmatch, paths) if number]
    reads = declared.get(options, "stdin") or options.hosts == "-"
    return subprocess.Popen(
        [*sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1], *words],
        executable=sys.executable,
        stdin=None if reads else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**environ, **added},
        start_new_session=True,
        pass_fds=tuple(fds),
    )


def _write(fd: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # there is no reader; the job runs nevertheless
        while data:
            data = data[os.write(fd, data) :]


# --- the launcher ---


def check_syntax(job: Job) -> None:
    """Refuse a PROGRAM on this machine with a syntax error.

    Raises:
        LaunchError: there is a syntax error.

    """
    path = find_program(job) or ""
    paths = [path] if path.endswith(".py") else []
    for error in find_syntax_errors(paths, job.python).values():
        raise LaunchError(f"{format_path(path)}:{error}", exit_status.FAILED)


def stand_by(job: Job, hosts: Sequence[Host], front: Front) -> None:
    """Take the place of a launcher's terminal, and read its journal.

    Raises:
        LaunchError: the job's folder cannot be made, or other users can open it.

    """
    standby = Standby(job, [host.name for host in hosts], front.loop)
    front.outputs = standby, standby
    front.again = f"mcjax-launch --stop {job.job_id} again kills them now"
    front.no_terminal = "a job of --detach has no terminal"
    front.journal.add_reader(standby)


class Standby(Sink):
    """Stand-in for the terminal of a detached job: its files, and the command until all ranks run.

    It reads the journal.

    Args:
        job: the job.
        hosts: names of the ranks' hosts.
        loop: event loop of the launcher.

    Raises:
        LaunchError: the job's folder cannot be made, or other users can open it.

    """

    def __init__(self, job: Job, hosts: Sequence[str], loop: Loop) -> None:
        super().__init__(2, loop)
        self._job_id = job.job_id
        about = {"program": job.program, "ranks": job.num_processes, "hosts": hosts}
        self._folder = JobFolder(job.job_id, about)
        self._waits_for: set[int] = set()
        self._has_started = False

    def watch(self, on_gone: Callable[[OSError | None], None]) -> None:
        super().watch(lambda error: None if self._has_started else on_gone(error))

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._folder.output.write(b"".join(pieces))
        if not self._has_started:
            super().write([bytes(piece).replace(_STARTED, b"") for piece in pieces])

    def on_planned(self, plan: Planned, at: float) -> None:
        """Learn which ranks there are."""
        self._waits_for = set(plan.places)

    def on_started(self, started: Started, at: float) -> None:
        """Let the command return once all ranks run; all further output is for the file alone."""
        self._waits_for.discard(started.rank)
        if not self._waits_for and not self._has_started:
            super().write((_STARTED,))
            self._has_started = True
            self._folder.output.redirect_stderr()

    def on_job_outcome(self, outcome: JobOutcome, at: float) -> None:
        """Record how the job has ended; remove the folder of a job that has never begun."""
        if self._has_started:
            self._folder.write_end(outcome.status, outcome.message)
        else:
            remove_folder(self._job_id)

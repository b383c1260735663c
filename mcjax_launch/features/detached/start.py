"""--detach: start the launcher again without a terminal, and wait until its ranks run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence, Set

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.detached.folders import make_job_folder, remove_folder
from mcjax_launch.features.detached.jobs import find_all_jobs
from mcjax_launch.features.detached.standby import STARTED
from mcjax_launch.job.job import Job
from mcjax_launch.job.program_file import find_program, find_syntax_errors
from mcjax_launch.journal.opening import DESCRIPTOR, parse_descriptor
from mcjax_launch.options import features as declared
from mcjax_launch.options.options import Options
from mcjax_launch.transport.early import DETACHED
from mcjax_launch.wire import exit_status
from mcjax_launch.wire.source_lines import format_path

_VARIABLE = "MCJAX_DETACH"
_MOST_READ = 4096
_DESCRIPTOR_PATH = re.compile("/dev/fd/([0-9]{1,9})")


def check_detach(options: Options, given: Set[str]) -> None:
    """Refuse options that a detached job cannot have.

    Args:
        options: all options, including --detach.
        given: names of the options on the command line.

    Raises:
        LaunchError: there is such an option.

    """
    if "status" in given:
        raise LaunchError("--detach cannot be combined with --status: give it to --attach")
    if (declared.get(options, "stdin") or options.hosts == "-") and os.isatty(0):
        option = "--stdin" if declared.get(options, "stdin") else "--hosts -"
        raise LaunchError(f"--detach leaves the terminal, which {option} reads: use < FILE")


def detach(options: Options, words: Sequence[str]) -> int:
    """Start a job that needs no terminal, print its id, and return the exit status.

    Args:
        options: checked options.
        words: words of the command line.

    Raises:
        LaunchError: the descriptor for events is not open, or the launcher cannot be started.

    """
    given = options.events or ""
    fds = [parse_descriptor(given)] if given.startswith(DESCRIPTOR) else []
    # A shell's <(command), among them PROGRAM itself.
    paths = [*options.program, *options.env_file]
    fds += [int(number[1]) for number in map(_DESCRIPTOR_PATH.fullmatch, paths) if number]
    find_all_jobs()  # those that ended long ago make room
    job_id = os.urandom(4).hex()
    folder, lock = make_job_folder(job_id)
    reading, writing = os.pipe()
    try:
        launcher = _start(job_id, options, words, writing, fds)
    except OSError as error:
        remove_folder(folder)
        raise LaunchError(
            f"--detach: the launcher cannot be started: {error.strerror}", exit_status.FAILED
        ) from None
    os.close(writing)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, lambda signum, _: launcher.send_signal(signum))
    has_started = _has_started(reading)
    os.close(lock)
    if has_started:
        _write(1, f"{job_id}\n".encode())
        return 0
    status = launcher.wait()
    remove_folder(folder)  # it was killed
    return exit_status.compute_exit_status(status) or exit_status.FAILED


def check_syntax(job: Job) -> None:
    """Refuse a PROGRAM on this machine with a syntax error, which no terminal would show.

    Raises:
        LaunchError: there is a syntax error.

    """
    path = find_program(job) or ""
    paths = [path] if path.endswith(".py") else []
    for error in find_syntax_errors(paths, job.python).values():
        raise LaunchError(f"{format_path(path)}:{error}", exit_status.FAILED)


def _start(
    job_id: str, options: Options, words: Sequence[str], stderr: int, fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a second launcher like this process, in a new session and without a terminal.

    `stderr` and `fds` are descriptors for it: its stderr, and descriptors to inherit.
    """
    environ = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    reads = declared.get(options, "stdin") or options.hosts == "-"
    own = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return subprocess.Popen(
        [*own, *words],
        executable=sys.executable,
        stdin=None if reads else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**environ, DETACHED: job_id},
        start_new_session=True,
        pass_fds=tuple(fds),
    )


def _has_started(reading: int) -> bool:
    """Copy the launcher's messages to stderr until all ranks run; return False if it exits."""
    while data := os.read(reading, _MOST_READ):
        text, started, _ = data.partition(STARTED)
        _write(2, text)
        if started:
            return True
    return False


def _write(fd: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:  # there is no reader; the job runs nevertheless
        return

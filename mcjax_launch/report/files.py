"""The file of --report, and those of diverged programs beside it: checked, named and written."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping

from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.program_code import parsed
from mcjax_launch.diagnosis.spmd import different_programs
from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.wire.address import split_text
from mcjax_launch.runs.spmd import Comparison

_JOB_ID = "job_id"
# Placeholders that each rank has its own value for.
_OF_RANKS = ("process_id", "local_process_id")


def check(path: str) -> None:
    """Whether the file of --report can be written.

    Args:
        path: as the user gave it; may hold placeholders.

    Raises:
        LaunchError: it cannot, as far as can be known now.

    """
    placeholders.check_path("--report", path)
    for name in _OF_RANKS:
        if f"{{{name}}}" in path:
            raise LaunchError(
                f"--report {path}: one report holds all ranks, so there is no {{{name}}}; "
                f"{{{_JOB_ID}}} tells jobs apart"
            )
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(path).st_mode):  # which knows too long a name as well
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        folder, name = os.path.split(os.path.realpath(path))
        while "{" in folder or not os.path.lexists(folder):  # made when the file is written
            folder, name = os.path.dirname(folder), "mcjax-launch"
        with _beside(os.path.join(folder, name)):
            pass
    except OSError as error:
        raise LaunchError(f"--report {path}: cannot be written: {error.strerror}") from None


def values(job: Job, attempt: Attempt | None) -> Mapping[str, str]:
    """What the placeholders in a path stand for.

    Args:
        job: what is run.
        attempt: the last one; None if there was none.

    """
    address = attempt.state.coordinator if attempt is not None else ""
    host, port = split_text(address) if address else ("", "")
    return {
        _JOB_ID: (attempt.state.job_id if attempt is not None else "") or "not-started",
        "host": os.uname().nodename,
        "num_processes": str(job.num_processes),
        "coordinator": address,
        "coordinator_host": host,
        "coordinator_port": port,
    }


def filled(path: str, values: Mapping[str, str]) -> str:
    """A path with its placeholders filled in."""
    return os.path.realpath(placeholders.fill(path, values))


def replace(path: str, text: str) -> None:
    """Put a whole file in its place, whatever was there; its folder is made.

    Raises:
        OSError: it cannot be written.

    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with _beside(path) as (fd, beside):
        data = memoryview(text.encode())
        while data:
            data = data[os.write(fd, data) :]
        os.replace(beside, path)


def save_programs(programs: Comparison, begin: str) -> list[str]:
    """Write the code of each program that has been shown; a line that says where it is.

    Args:
        programs: in which ranks have diverged.
        begin: of the files' paths, absolute; the folder is made.

    """
    assert programs.divergence is not None
    number, paths = programs.divergence.count + 1, []
    for side, program in different_programs(programs.sides()):
        code = programs.codes.get(program.fingerprint)
        if code is None or not code.complete or not code.text:
            continue
        path = f"{begin}program{number}.rank{side.ranks[0]}.mlir"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(parsed(code.text).text)
        except OSError as error:
            return [f"{path}: cannot be written: {error.strerror}"]
        paths.append(path)
    return [f"programs: {' '.join(paths)}"] if paths else []


@contextlib.contextmanager
def _beside(path: str) -> Iterator[tuple[int, str]]:
    """A new file in the same folder, which is removed unless it takes the other's place."""
    # Under a name that nobody can have put there before, as in a folder that others write to.
    beside = os.path.join(os.path.dirname(path), f".mcjax-report-{os.urandom(6).hex()}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        yield fd, beside
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)

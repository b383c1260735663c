"""`--report`: the record of a run, written to a file, as JSON or as a page that shows it."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.attempt import Attempt, Outcome
from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.job import Job
from mcjax_launch.protocol import exit_status
from mcjax_launch.protocol.address import split_text

if TYPE_CHECKING:
    from mcjax_launch.report.record import Json

_ENDINGS = (".json", ".html")
_JOB_ID = "job_id"
# Placeholders that each rank has its own value for.
_OF_RANKS = ("process_id", "local_process_id")
_HERE = os.path.dirname(os.path.abspath(__file__))
# The places in page.html that are filled in.
_PLACES = {"page.css": "/* page.css */\n", "page.js": "// page.js\n"}
_RECORD = '"the record"'


def check(path: str) -> None:
    """Whether the report can be written.

    Args:
        path: as the user gave it; may hold placeholders.

    Raises:
        LaunchError: it cannot, as far as can be known now.

    """
    if not path.lower().endswith(_ENDINGS):
        raise LaunchError(f"--report {path}: the name must end in .json or .html")
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
        while "{" in folder or not os.path.lexists(folder):  # made when the report is written
            folder, name = os.path.dirname(folder), "mcjax-launch"
        with _beside(os.path.join(folder, name)):
            pass
    except OSError as error:
        raise LaunchError(f"--report {path}: cannot be written: {error.strerror}") from None


def _filled(path: str, job: Job, attempts: "Sequence[Json]") -> str:
    """The path of the report, its placeholders as in the last attempt."""
    last: Json = attempts[-1] if attempts else {}
    address = last.get("coordinator") or ""
    host, port = split_text(address) if address else ("", "")
    values = {
        _JOB_ID: last.get("job_id") or "not-started",
        "host": os.uname().nodename,
        "num_processes": str(job.num_processes),
        "coordinator": address,
        "coordinator_host": host,
        "coordinator_port": port,
    }
    return os.path.realpath(placeholders.fill(path, values))


def reported(
    path: str,
    job: Job,
    arguments: Sequence[str],
    run: Callable[..., Outcome],
    say: Callable[[str], None],
    quiet: bool,
) -> int:
    """Run a job and write what happened, however it ends; its exit status.

    Args:
        path: of the report, checked; may hold placeholders.
        job: what is run.
        arguments: of the command line.
        run: what runs it, see restarts.run.
        say: prints a line of the launcher's own.
        quiet: do not say where the report and the log files are after a good end.

    Raises:
        LaunchError: the job could not be started.

    """
    from mcjax_launch.report import record

    path = os.path.abspath(path)  # the working directory may change
    began, began_at = time.time(), time.monotonic()
    attempts: list[record.Json] = []

    def ended(attempt: Attempt) -> None:
        attempts.append(record.attempt(attempt, began_at))
        record.lighten(attempts)
        if attempt.state.diverged and not attempt.state.log_dir:  # where the launcher saves them
            from mcjax_launch.report import programs

            begin = os.path.splitext(_filled(path, job, attempts))[0]
            for line in programs.save(attempt.state.programs, f"{begin}."):
                say(line)

    def write(status: int, end: str) -> None:
        seconds = time.monotonic() - began_at
        place = _filled(path, job, attempts)
        whole = record.run(
            job,
            arguments,
            attempts,
            began=began,
            seconds=seconds,
            status=status,
            end=end,
            host=os.uname().nodename,
        )
        whole["report_path"] = place
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            write_file(place, whole)
        except OSError as error:
            say(f"--report {place}: cannot be written: {error.strerror}")
            return
        log_dir = None if status else attempts[-1]["log_dir"]  # after a failure it has been said
        if status or not quiet:
            say(f"logs: {log_dir}, report: {place}" if log_dir else f"report: {place}")

    try:
        outcome = run(ended=ended)
    except LaunchError as error:
        write(error.status, str(error))
        raise
    except Exception as error:
        write(exit_status.INTERNAL_ERROR, f"internal error: {error!r}")
        raise
    write(outcome.status, outcome.message)
    return outcome.status


def page(text: str) -> str:
    """The page that shows a record.

    Args:
        text: the record as JSON of ASCII characters alone.

    """
    template = _part("page.html")
    for name, place in _PLACES.items():
        before, found, after = template.partition(place)
        assert found
        template = before + _part(name) + after
    before, found, after = template.partition(_RECORD)
    assert found and text.isascii()
    return before + text.replace("<", "\\u003c") + after  # it cannot contain </script>


def _part(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def write_file(path: str, record: "Json") -> None:
    """Write a report, in one piece: nobody ever sees a part of it.

    Raises:
        OSError: it cannot be written.

    """
    import json

    text = json.dumps(record, allow_nan=False)
    if path.lower().endswith(".html"):
        text = page(text)
    with _beside(path) as (fd, beside):
        data = memoryview(f"{text}\n".encode())
        while data:
            data = data[os.write(fd, data) :]
        os.replace(beside, path)


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

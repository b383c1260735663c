"""`--report`: the record of a run, written to a file, as JSON or as a page that shows it."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.attempt import Attempt, Outcome
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.protocol import exit_status

if TYPE_CHECKING:
    from mcjax_launch.report.record import Json

_ENDINGS = (".json", ".html")
_HERE = os.path.dirname(os.path.abspath(__file__))
# The places in page.html that are filled in.
_PLACES = {"page.css": "/* page.css */\n", "page.js": "// page.js\n"}
_RECORD = '"the record"'


def check(path: str) -> None:
    """Whether the report can be written.

    Raises:
        LaunchError: it cannot, as far as can be known now.

    """
    if not path.lower().endswith(_ENDINGS):
        raise LaunchError(f"--report {path}: the name must end in .json or .html")
    try:
        if os.path.isdir(path):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        with _beside(os.path.realpath(path)):
            pass
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        folder = os.path.dirname(os.path.realpath(path))
        if not os.path.isdir(folder):
            message = f"no such directory: {folder}"
        raise LaunchError(f"--report {path}: {message}") from None


def reported(
    path: str,
    job: Job,
    arguments: Sequence[str],
    run: Callable[..., Outcome],
    say: Callable[[str], None],
    verbose: bool,
) -> int:
    """Run a job and write what happened, however it ends; its exit status.

    Args:
        path: of the report, checked.
        job: what is run.
        arguments: of the command line.
        run: what runs it, see restarts.run.
        say: prints a line of the launcher's own.
        verbose: say where the report is after a good end too.

    Raises:
        LaunchError: the job could not be started.

    """
    from mcjax_launch.report import record

    path = os.path.realpath(path)
    began, began_at = time.time(), time.monotonic()
    attempts: list[record.Json] = []

    def ended(attempt: Attempt) -> None:
        if attempt.state.diverged and not attempt.state.log_dir:  # where the launcher saves them
            from mcjax_launch.report import programs

            for line in programs.save(attempt.state.programs, f"{os.path.splitext(path)[0]}."):
                say(line)
        attempts.append(record.attempt(attempt, began_at))
        record.lighten(attempts)

    def write(status: int, end: str) -> None:
        seconds = time.monotonic() - began_at
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
        try:
            _write(path, whole)
        except OSError as error:
            say(f"--report {path}: cannot be written: {error.strerror}")
            return
        if status or verbose:
            say(f"report: {path}")

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


def _write(path: str, record: "Json") -> None:
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
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name}.{os.getpid()}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    try:
        yield fd, beside
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)

"""`--report`: the record of a run, written to a file, as JSON or as a page that shows it."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.protocol import exit_status
from mcjax_launch.run.state import Attempt

_ENDINGS = (".json", ".html")
_TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")
#: Where the page has its record.
_PLACE = '"the record"'


def check(path: str) -> None:
    """Whether the report can be written.

    Raises:
        LaunchError: it cannot, as far as can be known now.

    """
    if not path.lower().endswith(_ENDINGS):
        raise LaunchError(f"--report {path}: write a name that ends with .json or .html")
    try:
        if os.path.isdir(path):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        with _beside(os.path.realpath(path)):
            pass
    except OSError as error:
        words = f"cannot be written: {error.strerror}"
        folder = os.path.dirname(os.path.realpath(path))
        if not os.path.isdir(folder):
            words = f"no such folder: {folder}"
        raise LaunchError(f"--report {path}: {words}") from None


def reported(
    path: str,
    job: Job,
    words: Sequence[str],
    run: Callable[..., int],
    say: Callable[[str], None],
    verbose: bool,
) -> int:
    """Run a job and write what happened, however it ends; its exit status.

    Args:
        path: of the report, checked.
        job: what is run.
        words: the command line.
        run: what runs it, see restarts.run.
        say: prints a line of the launcher's own.
        verbose: say where the report is after a good end too.

    Raises:
        LaunchError: the job could not be started.

    """
    from mcjax_launch.report import record

    path = os.path.realpath(path)
    began, began_at = time.time(), time.monotonic()
    attempts: list[dict[str, Any]] = []

    def ended(attempt: Attempt) -> None:
        attempts.append(record.attempt(attempt, began_at))
        record.lighten(attempts)

    def write(status: int, end: str | None = None) -> None:
        seconds = time.monotonic() - began_at
        whole = record.run(
            job,
            words,
            attempts,
            began=began,
            seconds=seconds,
            status=status,
            end=record.last_words(attempts, status) if end is None else end,
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
        status = run(ended=ended)
    except LaunchError as error:
        write(error.status, str(error))
        raise
    except Exception as error:
        write(exit_status.INTERNAL_ERROR, f"a fault of the launcher's own: {error!r}")
        raise
    write(status)
    return status


def page(text: str) -> str:
    """The page that shows a record.

    Args:
        text: the record as JSON of ASCII characters alone.

    """
    with open(_TEMPLATE, encoding="utf-8") as template:
        before, place, after = template.read().partition(_PLACE)
    assert place and text.isascii()
    return before + text.replace("<", "\\u003c") + after  # nothing in it ends its element


def _write(path: str, record: dict[str, Any]) -> None:
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

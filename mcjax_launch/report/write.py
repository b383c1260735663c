"""`--report`: the record of a run, written to a file, as JSON or as a page that shows it."""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.job import Job
from mcjax_launch.report import files, record

if TYPE_CHECKING:
    from mcjax_launch.report.record import Json

_ENDINGS = (".json", ".html")
_HERE = os.path.dirname(os.path.abspath(__file__))
# The places in page.html that are filled in.
_PLACES = {"page.css": "/* page.css */\n", "page.js": "// page.js\n"}
_RECORD = '"the record"'


def check(path: str) -> None:
    """Whether the report can be written; see `files.check`."""
    if not path.lower().endswith(_ENDINGS):
        raise LaunchError(f"--report {path}: the name must end in {' or '.join(_ENDINGS)}")
    files.check(path)


class ReportWriter:
    """Keeps what happens, and writes it; a `recording.Recorder`.

    Args:
        path: checked; may hold placeholders.
        job: what is run.
        arguments: of the command line.
        say: prints a line of the launcher's own.
        quiet: do not say where the report and the log files are after a good end.

    """

    def __init__(
        self,
        path: str,
        job: Job,
        arguments: Sequence[str],
        say: Callable[[str], object],
        quiet: bool,
    ) -> None:
        self._path = os.path.abspath(path)  # the working directory may change
        self._job = job
        self._arguments = arguments
        self._say = say
        self._quiet = quiet
        self._began, self._began_at = time.time(), time.monotonic()
        self._attempts: list[Json] = []
        self._values = files.values(job, None)

    def ended(self, attempt: Attempt) -> None:
        """Keep the record of an attempt."""
        self._attempts.append(record.attempt(attempt, self._began_at))
        record.lighten(self._attempts)
        self._values = files.values(self._job, attempt)
        if attempt.state.diverged and not attempt.state.log_dir:  # where the launcher saves them
            begin = os.path.splitext(files.filled(self._path, self._values))[0]
            for line in files.save_programs(attempt.state.programs, f"{begin}."):
                self._say(line)

    def over(self, status: int, end: str) -> None:
        """Write the report."""
        place = files.filled(self._path, self._values)
        whole = record.run(
            self._job,
            self._arguments,
            self._attempts,
            began=self._began,
            seconds=time.monotonic() - self._began_at,
            status=status,
            end=end,
            host=os.uname().nodename,
        )
        whole["report_path"] = place
        try:
            files.replace(place, _text(place, whole))
        except OSError as error:
            self._say(f"--report {place}: cannot be written: {error.strerror}")
            return
        # After a failure it has been said.
        log_dir = None if status else self._attempts[-1]["log_dir"]
        if status or not self._quiet:
            self._say(f"logs: {log_dir}, report: {place}" if log_dir else f"report: {place}")


def page(text: str) -> str:
    """The page that shows a record.

    Args:
        text: the record as JSON of ASCII characters alone.

    """
    template = _part("page.html")
    for name, place in _PLACES.items():
        before, found, after = template.partition(place)
        assert found
        part = _part(name)
        before = before.replace(f"hash of {name}", _hash(f"\n{part}"))
        template = before + part + after
    before, found, after = template.partition(_RECORD)
    assert found and text.isascii()
    return before + text.replace("<", "\\u003c") + after  # it cannot contain </script>


def _hash(inside: str) -> str:
    """The hash by which the page's Content-Security-Policy allows an element with this text."""
    from base64 import b64encode
    from hashlib import sha256

    return f"sha256-{b64encode(sha256(inside.encode()).digest()).decode()}"


def _part(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def _text(path: str, record: "Json") -> str:
    import json

    text = json.dumps(record, allow_nan=False)
    return f"{page(text) if path.lower().endswith('.html') else text}\n"

"""The file of --report, and files next to it: checks, names and writing."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.report import run_record
from mcjax_launch.job import placeholders
from mcjax_launch.job.job import Job
from mcjax_launch.journal.attempt import Attempt, JobOutcome
from mcjax_launch.machine import own_paths
from mcjax_launch.machine.system import NEW_FILE, read_system_text
from mcjax_launch.wire.address import split_text

if TYPE_CHECKING:
    from mcjax_launch.features.report.run_record import Json


_JOB_ID = "job_id"
# Placeholders whose values differ between ranks.
_OF_RANKS = ("process_id", "local_process_id")


def check_writable(path: str) -> None:
    """Check that the file of --report can be written.

    Args:
        path: value of --report; may have placeholders.

    Raises:
        LaunchError: the file cannot be written, or a placeholder is invalid.

    """
    placeholders.check_path("--report", path)
    for name in _OF_RANKS:
        if f"{{{name}}}" in path:
            raise LaunchError(
                f"--report {path}: one report holds all ranks, so there is no {{{name}}}; "
                f"use {{{_JOB_ID}}} to tell jobs apart"
            )
    try:
        own_paths.check(path)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(path).st_mode):  # raises for too long a name as well
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        folder, name = os.path.split(os.path.realpath(path))
        while "{" in folder or not os.path.lexists(folder):  # made when the file is written
            folder, name = os.path.dirname(folder), "mcjax-launch"
        with _beside(os.path.join(folder, name)):
            pass
    except OSError as error:
        raise LaunchError(f"--report {path}: cannot be written: {error.strerror}") from None


def make_placeholder_values(job: Job, attempt: Attempt | None) -> Mapping[str, str]:
    """Return the values of the placeholders in a path.

    Args:
        job: the job.
        attempt: the last attempt; None if there was none.

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


def fill_path(path: str, values: Mapping[str, str]) -> str:
    """Return the absolute path that results from filling in the placeholders of a path."""
    return os.path.abspath(placeholders.fill(path, values))


def replace(path: str, text: str) -> None:
    """Write a whole file atomically, in place of any file of that name; create its folder.

    Raises:
        OSError: the file cannot be written.

    """
    with _beside(path) as (fd, take_place):
        data = memoryview(text.encode())
        while data:
            data = data[os.write(fd, data) :]
        take_place()


@contextlib.contextmanager
def _beside(path: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """Create a new file next to `path`; yield its descriptor, and a function that renames it."""
    # A random name, as another user may write to the folder and expect this file.
    beside = f".mcjax-report-{os.urandom(6).hex()}.new"
    with own_paths.folder_of(path) as (folder, name):
        fd = os.open(beside, NEW_FILE, 0o666, dir_fd=folder)
        try:
            yield fd, lambda: os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)


# --- writing the record ---

_ENDINGS = (".json", ".html")
_HERE = os.path.dirname(os.path.abspath(__file__))
# Placeholders in page.html, by the file that replaces each.
_PLACES = {"page.css": "/* page.css */\n", "page.js": "// page.js\n"}
_RECORD = '"the record"'


def check_report(path: str) -> None:
    """Check that the report can be written; see `check_writable`."""
    if not path.lower().endswith(_ENDINGS):
        raise LaunchError(f"--report {path}: the name must end in {' or '.join(_ENDINGS)}")
    check_writable(path)


class ReportWriter:
    """Reader of the journal that keeps the attempts of a job, and writes the report.

    Args:
        path: checked path, which may have placeholders.
        job: the job.
        arguments: words of the command line.
        say: prints a line of the launcher.
        quiet: True to print the path of the report only after a failure.

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
        self._began_at = time.monotonic()
        self._checkout = find_checkout(job)
        self._attempts: list[Json] = []
        self._values = make_placeholder_values(job, None)

    def on_attempt(self, attempt: Attempt, at: float) -> None:
        """Keep the record of an attempt."""
        if not self._attempts:  # with --watch the wait for a save comes before
            self._began_at = attempt.state.began_at
        self._attempts.append(run_record.make_attempt_record(attempt, self._began_at))
        run_record.lighten(self._attempts)
        self._values = make_placeholder_values(self._job, attempt)

    def on_job_outcome(self, outcome: JobOutcome, at: float) -> None:
        """Write the report."""
        status = outcome.status
        path = fill_path(self._path, self._values)
        place = os.path.realpath(path)
        seconds = time.monotonic() - self._began_at
        whole = run_record.make_run_record(
            self._job,
            self._arguments,
            self._attempts,
            began=time.time() - seconds,
            seconds=seconds,
            status=status,
            end=outcome.message,
            host=os.uname().nodename,
        )
        whole["report_path"] = place
        whole["checkout"] = None if self._checkout is None else self._checkout.make_record()
        try:
            replace(path, _format_text(place, whole))
        except OSError as error:
            self._say(f"--report {place}: cannot be written: {error.strerror}")
            return
        # After a failure the summary has named it.
        log_dir = None if status else self._attempts[-1]["log_dir"]
        if status or not self._quiet:
            self._say(f"logs: {log_dir}, report: {place}" if log_dir else f"report: {place}")


def make_page(text: str) -> str:
    """Return the HTML page that shows a record.

    Args:
        text: the record as JSON, in ASCII characters only.

    """
    template = _read_part("page.html")
    for name, place in _PLACES.items():
        before, found, after = template.partition(place)
        assert found
        part = _read_part(name)
        before = before.replace(f"hash of {name}", _compute_hash(f"\n{part}"))
        template = before + part + after
    before, found, after = template.partition(_RECORD)
    assert found and text.isascii()
    return before + text.replace("<", "\\u003c") + after  # it cannot contain </script>


def _compute_hash(inside: str) -> str:
    """Return the hash of an element's text for the page's Content-Security-Policy."""
    from base64 import b64encode
    from hashlib import sha256

    return f"sha256-{b64encode(sha256(inside.encode()).digest()).decode()}"


def _read_part(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def _format_text(path: str, record: Json) -> str:
    import json

    text = json.dumps(record, allow_nan=False)
    return f"{make_page(text) if path.lower().endswith('.html') else text}\n"


# --- the git checkout that a job's program is in ---

# For the end of a job that was shorter than git's look at a huge checkout.
_ANSWERS_S = 3.0
_COMMIT = re.compile("[0-9a-f]{40,64}")
# git starts no process that stays, writes nothing, and takes no other repository for this one.
_STATUS = ("-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=no")


class Checkout:
    """A git checkout as it is now; git looks for changes while the job runs.

    Args:
        root: folder of the checkout.

    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._commit = _read_commit(root)
        self._git: subprocess.Popen[bytes] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            self._git = subprocess.Popen(
                ["git", "-C", root, *_STATUS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**kept, "GIT_OPTIONAL_LOCKS": "0"},
                start_new_session=True,  # a Ctrl-C is not for git
            )
        except OSError:  # there is no git
            return

    def make_record(self) -> dict[str, Any]:
        """Return the record of the checkout as it was at the start; call it once."""
        clean = None if self._git is None else _wait_for_status(self._git)
        return {"folder": self._root, "commit": self._commit or None, "clean": clean}


def find_checkout(job: Job) -> Checkout | None:
    """Return the git checkout that holds PROGRAM, or else the working directory; None for none."""
    name = next((word for word in job.program[:2] if word.endswith(".py") and not job.module), "")
    path = os.path.join(job.chdir, name)
    folder = os.path.dirname(path) if name and os.path.isfile(path) else job.chdir
    folder = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return Checkout(folder)


def _wait_for_status(git: subprocess.Popen[bytes]) -> bool | None:
    """Return whether git has found no changes; None if it fails, or takes too long."""
    try:
        changes, _ = git.communicate(timeout=_ANSWERS_S)
    except subprocess.TimeoutExpired as late:
        git.kill()
        git.communicate()
        return False if late.output else None
    return None if git.returncode else not changes


def _read_commit(root: str) -> str:
    """Return the commit that a checkout is at, without git; "" if it has none, or is unknown."""
    folder = os.path.join(root, ".git")
    if link := read_system_text(folder):  # `gitdir: ...`, of a worktree or a submodule
        folder = os.path.join(root, link.partition(": ")[2])
    head = read_system_text(os.path.join(folder, "HEAD"))
    _, is_branch, branch = head.partition("ref: ")
    if not is_branch:
        return head if _COMMIT.fullmatch(head) else ""
    common = os.path.join(folder, read_system_text(os.path.join(folder, "commondir")))
    for place in (folder, common):
        if _COMMIT.fullmatch(commit := read_system_text(os.path.join(place, branch))):
            return commit
    return _find_packed(os.path.join(common, "packed-refs"), branch)


def _find_packed(path: str, branch: str) -> str:
    """Return the commit of a branch in a list of branches; "" if it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                commit, _, name = line.strip().partition(" ")
                if name == branch and _COMMIT.fullmatch(commit):
                    return commit
    except OSError:
        pass
    return ""

"""Recorders: receivers of each attempt and of the end of a job; one writes for the kubelet."""

from collections.abc import Callable, Sequence
from typing import Protocol

from mcjax_launch.diagnosis.attempt import Attempt, JobOutcome
from mcjax_launch.errors import LaunchError
from mcjax_launch.wire import exit_status

# The kubelet keeps no more of a termination message.
_MOST_BYTES = 4096


class Recorder(Protocol):
    """A receiver of the attempts and the outcome of a job, such as the writer of a report."""

    def on_attempt_end(self, attempt: Attempt) -> None:
        """Record a finished attempt; called after each."""

    def on_job_end(self, status: int, end: str) -> None:
        """Record the launcher's exit status and a line on the end; called once, also on errors."""


def run_with_recorders(run: Callable[..., JobOutcome], recorders: Sequence[Recorder]) -> JobOutcome:
    """Run a job, pass its attempts and outcome to recorders, and return the outcome.

    Args:
        run: runs the job; called with `ended=`, to call after each attempt.
        recorders: the recorders, in the order of their calls.

    Raises:
        LaunchError: the job could not be started.

    """

    def on_attempt_end(attempt: Attempt) -> None:
        for recorder in recorders:
            recorder.on_attempt_end(attempt)

    def on_job_end(status: int, end: str) -> None:
        for recorder in recorders:
            recorder.on_job_end(status, end)

    try:
        outcome = run(ended=on_attempt_end)
    except LaunchError as error:
        on_job_end(error.status, str(error))
        raise
    except Exception as error:
        on_job_end(exit_status.INTERNAL_ERROR, f"internal error: {error!r}")
        raise
    on_job_end(outcome.status, outcome.message)
    return outcome


class TerminationMessage:
    """A recorder that writes the last summary of a failed run for Kubernetes.

    Kubernetes keeps the file's text after the end of the pod.

    Args:
        place: path of the file.

    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._lines: tuple[str, ...] = ()

    def on_attempt_end(self, attempt: Attempt) -> None:
        """Keep the summary of an attempt."""
        self._lines = attempt.summary.lines

    def on_job_end(self, status: int, end: str) -> None:
        """Write the last attempt's summary, or `end` if there is none, if the job failed."""
        if status == 0:
            return
        text = select_fitting_lines(self._lines or (end,))
        try:
            with open(self._place, "wb") as file:
                file.write(text)
        except OSError:  # the log has the same lines
            return


def select_fitting_lines(lines: tuple[str, ...]) -> bytes:
    """Return the first lines that fit into 4096 bytes; of a longer first line, its beginning."""
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    if len(text) <= _MOST_BYTES:
        return text
    whole, newline, _ = text[: _MOST_BYTES + 1].rpartition(b"\n")
    if newline:
        return whole
    return text[:_MOST_BYTES].decode("utf-8", "ignore").encode()

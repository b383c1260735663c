"""Runs a job and tells its recorders of each attempt and of the end; one writes for the kubelet."""

from collections.abc import Callable, Sequence
from typing import Protocol

from mcjax_launch.diagnosis.attempt import Attempt, JobOutcome
from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire import exit_status

# What the kubelet keeps of it.
_MOST_BYTES = 4096


class Recorder(Protocol):
    """Writes down what happens in a run."""

    def ended(self, attempt: Attempt) -> None:
        """An attempt is over."""

    def over(self, status: int, end: str) -> None:
        """The launcher's whole work is over, with this exit status, and as `end` says in a line."""


def recorded(run: Callable[..., JobOutcome], recorders: Sequence[Recorder]) -> JobOutcome:
    """Run a job, and tell recorders what happens; how it ended.

    Args:
        run: what runs it, see restarts.run.
        recorders: in the order in which they write.

    Raises:
        LaunchError: the job could not be started.

    """

    def ended(attempt: Attempt) -> None:
        for recorder in recorders:
            recorder.ended(attempt)

    def over(status: int, end: str) -> None:
        for recorder in recorders:
            recorder.over(status, end)

    try:
        outcome = run(ended=ended)
    except LaunchError as error:
        over(error.status, str(error))
        raise
    except Exception as error:
        over(exit_status.INTERNAL_ERROR, f"internal error: {error!r}")
        raise
    over(outcome.status, outcome.message)
    return outcome


class TerminationMessage:
    """Writes the last summary of a failed run where Kubernetes keeps it after a pod's end.

    Args:
        place: of the file.

    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._lines: tuple[str, ...] = ()

    def ended(self, attempt: Attempt) -> None:
        """Keep its summary."""
        self._lines = attempt.summary.lines

    def over(self, status: int, end: str) -> None:
        """Write it; what is too long loses its last lines."""
        if status == 0:
            return
        text = fitting(self._lines or (end,))
        try:
            with open(self._place, "wb") as file:
                file.write(text)
        except OSError:  # all of it is in the log too
            return


def fitting(lines: tuple[str, ...]) -> bytes:
    """As many lines as fit, the first ones; of a first one that is too long, its beginning."""
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    if len(text) <= _MOST_BYTES:
        return text
    whole, newline, _ = text[: _MOST_BYTES + 1].rpartition(b"\n")
    if newline:
        return whole
    return text[:_MOST_BYTES].decode("utf-8", "ignore").encode()

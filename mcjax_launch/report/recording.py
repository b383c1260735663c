"""A run and those who write down what happens in it, however it ends."""

from collections.abc import Callable, Sequence
from typing import Protocol

from mcjax_launch.diagnosis.attempt import Attempt, JobOutcome
from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire import exit_status


class Recorder(Protocol):
    """Writes down what happens in a run."""

    def ended(self, attempt: Attempt) -> None:
        """An attempt is over."""

    def over(self, status: int, end: str) -> None:
        """The launcher's whole work is over, with this exit status, and as `end` says in a line."""


def recorded(run: Callable[..., JobOutcome], recorders: Sequence[Recorder]) -> JobOutcome:
    """Run a job and have written down what happens; how it ended.

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

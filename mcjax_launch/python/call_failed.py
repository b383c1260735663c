"""Errors that ranks have raised in a call of a session, as one error for the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.journal.headline import extract_headline
from mcjax_launch.python.call_progress import INTERRUPT_S, CallProgress
from mcjax_launch.python.values import Answer
from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.wire.exit_status import FAILED
from mcjax_launch.wire.value import Value


class RankError(Value):
    """Exception that a rank has raised.

    Args:
        rank: number of the rank.
        message: line that names the exception: "ValueError: bad batch".
        traceback: its traceback, as text, without frames of JAX and of mcjax-launch.
        exception: the exception; None if it cannot be pickled, or its class not be imported here.

    """

    rank: int
    message: str
    traceback: str
    exception: BaseException | None


class CallFailed(LaunchError):
    """Error for a call that has raised an exception in some ranks, or cannot end there.

    The notes are the tracebacks, equal ones once; the cause is the exception of the first rank.

    Attributes:
        errors: what each failed rank has raised, in order of rank.
        unfinished: ranks whose call was ended, because they waited for a failed rank in a
            collective, or did not react to the interrupt.
        restarted: True if the session has started its ranks again, so that their state is gone.

    """

    def __init__(
        self, message: str, errors: Sequence[RankError], unfinished: Sequence[int] = ()
    ) -> None:
        super().__init__(message, FAILED)
        self.errors = tuple(errors)
        self.unfinished = tuple(unfinished)
        self.restarted = bool(unfinished)
        for text, ranks in _group(errors, "traceback").items():
            self.add_note(f"{format_ranks(ranks)}:\n{text.rstrip()}")
        if errors:
            self.__cause__ = errors[0].exception

    def __reduce__(self) -> tuple[type[CallFailed], tuple[object, ...]]:
        return CallFailed, (str(self), self.errors, self.unfinished)


def make_rank_error(rank: int, answer: Answer) -> RankError:
    """Return the error of a rank whose answer is an exception."""
    failure = answer.told.failure
    assert failure is not None
    try:
        exception = answer.unpickle() if answer.can_be_unpickled else None
    except Exception:  # its class cannot be imported here
        exception = None
    return RankError(rank, extract_headline(failure), failure.traceback, exception)


def describe_errors(errors: Sequence[RankError]) -> str:
    """Return what ranks have raised, in one line: equal exceptions once."""
    groups = _group(errors, "message")
    return "; ".join(f"{format_ranks(ranks)} raised {text}" for text, ranks in groups.items())


def describe_unfinished(progress: CallProgress) -> str:
    """Return why ranks cannot end a call, in words."""
    ranks = format_ranks(progress.running)
    if not progress.places:
        return f"{ranks} did not react to the interrupt within {INTERRUPT_S:g} s"
    wait = "waits" if len(progress.running) == 1 else "wait"
    places = " and ".join(progress.places)
    return f"{ranks} {wait} for others {places}, which JAX cannot abandon"


def _group(errors: Sequence[RankError], field: str) -> Mapping[str, list[int]]:
    return group_by_key((getattr(error, field), error.rank) for error in errors)

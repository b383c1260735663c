"""Progress of a call in the ranks that make it, reasons to wait no longer, and its errors; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.client.calls import Answer
from mcjax_launch.journal.words import extract_headline
from mcjax_launch.ranks import format_ranks, group_by_key
from mcjax_launch.wire.exit_status import FAILED
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wire.value import Value

# How long the other ranks get when a rank has failed, before the launcher is asked whether they
# wait: they may fail too. All do the same work, so after a late failure they get more time.
_GRACE_S = scale_time(1.0)
_GRACE_SHARE = 0.5
_MOST_GRACE_S = scale_time(5.0)
#: How long ranks may take to react to an interrupt.
INTERRUPT_S = scale_time(3.0)


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
        for text, ranks in group_by_key((own.traceback, own.rank) for own in errors).items():
            self.add_note(f"{format_ranks(ranks)}:\n{text.rstrip()}")
        if errors:
            self.__cause__ = errors[0].exception

    def __reduce__(self) -> tuple[type[CallFailed], tuple[object, ...]]:
        return CallFailed, (str(self), self.errors, self.unfinished)


class Due(Enum):
    """Actions that may be due while ranks have not answered."""

    NOTHING = auto()
    ASK = auto()  # the launcher, which ranks wait for others
    GIVE_UP = auto()  # the ranks, which wait for a failed one or do not react to the interrupt


class CallProgress:
    """Progress of a call.

    Times are in time.monotonic's seconds.

    Args:
        ranks: ranks that make the call.
        now: the time.
        number: number of the call.

    Attributes:
        ranks: ranks that make the call.
        number: number of the call.
        answers: what ranks have returned.
        places: where ranks wait for others in JAX, in words, when all unfinished ranks do; else ().

    """

    def __init__(self, ranks: Iterable[int], now: float, number: int) -> None:
        self.ranks = frozenset(ranks)
        self.number = number
        self.answers: dict[int, Answer] = {}
        self.places: tuple[str, ...] = ()
        self._began = now
        self._ask_at: float | None = None
        self._give_up_at: float | None = None

    @property
    def running(self) -> list[int]:
        """Ranks that have not answered, in ascending order."""
        return sorted(self.ranks - self.answers.keys())

    def record_answer(self, rank: int, answer: Answer, now: float) -> None:
        """Record what a rank has returned."""
        self.answers[rank] = answer
        if any(own.told.kind == "raised" for own in self.answers.values()):
            passed_s = now - self._began
            self._ask_at = now + min(_GRACE_S + _GRACE_SHARE * passed_s, _MOST_GRACE_S)

    def record_interrupt(self, now: float) -> None:
        """Record that the ranks have been interrupted."""
        if self._give_up_at is None:
            self._give_up_at = now + INTERRUPT_S

    def record_absence(self, number: int) -> None:
        """Record that the ranks have not got the call with this number."""
        if number == self.number:
            self.ranks = frozenset()

    def record_waiting(self, ranks: Iterable[int], places: Sequence[str]) -> None:
        """Record the ranks that wait for others in JAX, and where."""
        if set(self.running) <= set(ranks):
            self.places = tuple(places)

    def compute_wait_s(self, now: float) -> float | None:
        """Return the seconds until something may be due; None if only an answer is awaited."""
        times = [at for at in (self._ask_at, self._give_up_at) if at is not None]
        return max(0.0, min(times) - now) if times else None

    def pop_due(self, now: float) -> Due:
        """Return what is due; a question is due again later."""
        if self.places or (self._give_up_at is not None and now >= self._give_up_at):
            return Due.GIVE_UP
        if self._ask_at is not None and now >= self._ask_at:
            self._ask_at = now + _MOST_GRACE_S
            return Due.ASK
        return Due.NOTHING

    def list_errors(self) -> list[RankError]:
        """Return what ranks have raised, in order of rank."""
        raised = [rank for rank, answer in self.answers.items() if answer.told.kind == "raised"]
        return [_make_rank_error(rank, self.answers[rank]) for rank in sorted(raised)]

    def describe_unfinished(self) -> str:
        """Return why ranks cannot end the call, in words; "" if all have answered."""
        if not self.running:
            return ""
        ranks = format_ranks(self.running)
        if not self.places:
            return f"{ranks} did not react to the interrupt within {INTERRUPT_S:g} s"
        wait = "waits" if len(self.running) == 1 else "wait"
        return f"{ranks} {wait} for others {' and '.join(self.places)}, which JAX cannot abandon"


def _make_rank_error(rank: int, answer: Answer) -> RankError:
    failure = answer.told.failure
    assert failure is not None
    try:
        exception = answer.unpickle()
    except Exception:  # it could not be pickled, or its class cannot be imported here
        exception = None
    return RankError(rank, extract_headline(failure), failure.traceback, exception)


def describe_errors(errors: Sequence[RankError]) -> str:
    """Return what ranks have raised, in one line: equal exceptions once."""
    groups = group_by_key((own.message, own.rank) for own in errors)
    return "; ".join(f"{format_ranks(ranks)} raised {text}" for text, ranks in groups.items())

"""Parts that decide and parts that act, as timers of the one loop."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from mcjax_launch.watchdog.spmd import SpmdWatch

T = TypeVar("T", covariant=True)
U = TypeVar("U")


class Deciding(Protocol[T]):
    """A part that says what is to be done, and does nothing itself."""

    @property
    def deadline(self) -> float | None:
        """When to call `expire`; None while there is nothing to wait for."""

    def expire(self, now: float) -> T | None:
        """What is to be done, if it is time."""


class Acting(Generic[U]):
    """A timer that does what a part decides.

    Args:
        part: that decides.
        act: called with what is to be done.

    """

    def __init__(self, part: Deciding[U], act: Callable[[U], object]) -> None:
        self._part = part
        self._act = act

    @property
    def deadline(self) -> float | None:
        """When the part has something to decide."""
        return self._part.deadline

    def expire(self, now: float) -> None:
        """Let it decide, and act on the decision."""
        decision = self._part.expire(now)
        if decision is not None:
            self._act(decision)


class Once:
    """A timer that acts once.

    Args:
        deadline: when, in time.monotonic's seconds.
        act: called then.

    """

    def __init__(self, deadline: float, act: Callable[[], object]) -> None:
        self.deadline: float | None = deadline
        self._act = act

    def expire(self, now: float) -> None:
        """Act, if it is time."""
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._act()


class Asking:
    """A timer that does what the watch over programs decides: notes, and what ranks are told.

    Args:
        watch: whose own time the limits keep.
        note: shows a line.
        ask: asks ranks which programs they still run.
        release: lets ranks run the program with this fingerprint.
        show: has a rank show the code of the program with this fingerprint.
        look: asks for the stacks of all ranks.

    """

    deadline = None

    def __init__(
        self,
        watch: "SpmdWatch",
        note: Callable[[str], None],
        ask: Callable[[Sequence[int]], None],
        release: Callable[[str, Collection[int]], None],
        show: Callable[[str, int], None],
        look: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._note = note
        self._ask = ask
        self._release = release
        self._show = show
        self._look = look

    def expire(self, now: float) -> None:
        """Act on what the limits have just had it decide."""
        for line in self._watch.take_notes():
            self._note(line)
        if ranks := self._watch.take_ranks_to_ask():
            self._ask(ranks)
        if self._watch.take_stack_request():
            self._look()
        for fingerprint, held in self._watch.take_released().items():
            self._release(fingerprint, held)
        for fingerprint, rank in self._watch.take_programs_to_show():
            self._show(fingerprint, rank)

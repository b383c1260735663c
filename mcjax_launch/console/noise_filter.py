"""What a rank says, without what JAX prints that is no news; pure.

A victim of another rank's death can be faster with its words than the kernel is with the news of
that death: from the first of them on its stderr is held back for a moment, until it is clear
whether they are news. So is a traceback, until its last line says whose it is.
"""

from collections.abc import Callable

from mcjax_launch.console.lines import Source
from mcjax_launch.jax_messages.noise import (
    GLOO_START,
    GlooListener,
    Listener,
    Noise,
    may_hold_victim,
    sift,
)
from mcjax_launch.jax_messages.tracebacks import START, whose
from mcjax_launch.protocol import frames

# A rank that prints so much at once prints more than anybody reads: no look slows it down.
_FLOOD = 1 << 16
#: For so long,
HOLD_S = 0.5
#: or until there is so much of it.
MOST_HELD = 1 << 18
#: Gloo writes its lines in pieces; on a busy machine they take their time.
GLOO_S = 2.0
#: After this many seconds without more of them, what has been left out is told.
QUIET_S = 2.0


class LeftOut:
    """Counts lines that are left out, until it is time to say so.

    Args:
        words: what they are.

    Attributes:
        due: when to say it.

    """

    def __init__(self, words: str) -> None:
        self.due: float | None = None
        self._words = words
        self._count = 0
        self._said = False

    def add(self, count: int, now: float) -> None:
        """So many more; the first of them are told of after a moment, others at the end."""
        self._count += count
        if not self._said:
            self.due = now + QUIET_S

    def take(self) -> str:
        """What to say, empty if there is nothing new."""
        count, self._count, self.due = self._count, 0, None
        if not count:
            return ""
        more, self._said = "more " if self._said else "", True
        return f"left out {count} {more}line{'s' * (count != 1)} {self._words}; -v shows them"


class Calm:
    """Takes the chunks of all ranks and leaves out of them what is no news."""

    def __init__(self) -> None:
        self._gloo = LeftOut('of Gloo\'s, "[Gloo] Rank 0 is connected ..."')
        self._victims = LeftOut("about the end of the job in other ranks")
        self._over = False
        self._culprit: int | None = None
        self._noise = {Noise.VICTIM, Noise.STACK, Noise.TRACEBACK, Noise.TERM}
        self._gloo_listeners: dict[int, GlooListener] = {}
        self._listeners: dict[int, Listener] = {}
        self._held: dict[int, tuple[float, bytes]] = {}  # until when, and what

    def feed(self, rank: int, stream: int, source: Source, data: bytes, now: float) -> bytes:
        """What to show of a rank's next chunk; may drop the line that has begun."""
        if stream == frames.STDOUT:
            return self._without_gloo(rank, source, data, now)
        if self._over and rank == self._culprit:
            return data
        data = self._not_held(rank, source, data, now)
        return self._without_victims(rank, source, data, now) if self._over else data

    def _without_gloo(self, rank: int, source: Source, data: bytes, now: float) -> bytes:
        if len(data) >= _FLOOD:
            self._gloo_listeners.pop(rank, None)
            return data
        listener = self._gloo_listeners.setdefault(rank, GlooListener())
        return self._sifted(source, data, listener.unwanted, listener.may_be_in, self._gloo, now)

    def _without_victims(self, rank: int, source: Source, data: bytes, now: float) -> bytes:
        listener = self._listeners.setdefault(rank, Listener())
        if START in data:
            listener.expect(whose(source.partial + data))

        def unwanted(line: bytes) -> bool:
            return listener.kind(line) in self._noise

        return self._sifted(source, data, unwanted, listener.may_be_in, self._victims, now)

    def _sifted(
        self,
        source: Source,
        data: bytes,
        unwanted: Callable[[bytes], bool],
        may_be_in: Callable[[bytes], bool],
        left_out: LeftOut,
        now: float,
    ) -> bytes:
        gone, data, count = sift(source.partial, source.begun_to_show, data, unwanted, may_be_in)
        if gone:
            source.forget()
        if count:
            left_out.add(count, now)
        return data

    def patience_s(self, source: Source) -> float:
        """How much longer than others an unfinished line waits to be shown, in seconds."""
        return GLOO_S if source.partial.startswith(GLOO_START) else 0.0

    def _not_held(self, rank: int, source: Source, data: bytes, now: float) -> bytes:
        """What is to be shown now, of this chunk and of what has been held back."""
        until, held = self._held.pop(rank, (now + HOLD_S, b""))
        if not held and not source.begun_to_show and _begins_traceback(source.partial, data):
            held = bytes(source.partial)
            source.forget()
        data = held + data
        if len(data) > MOST_HELD or not self._is_open(data):
            return data
        self._held[rank] = until, data
        return b""

    def _is_open(self, data: bytes) -> bool:
        """Whether it is not clear yet whether all of this is news."""
        tracebacks = whose(data) if START in data else []
        if self._over:
            return tracebacks[-1:] == [None]
        return may_hold_victim(data) or tracebacks[-1:] in ([None], [True])

    def fold_victims(self, culprit: int | None, *, own_term: bool) -> list[tuple[int, bytes]]:
        """The job ends: leave out what JAX says in ranks that end because of another's failure.

        Args:
            culprit: the rank that failed, if one did; it is heard out.
            own_term: whether it is the launcher's own TERM that the ranks get: that they have
                caught the user's is worth knowing.

        Returns:
            What was held back of each rank's stderr, to be fed again.

        """
        if not self._over:
            self._over, self._culprit = True, culprit
        if not own_term:
            self._noise.discard(Noise.TERM)
        return self._release(list(self._held))

    @property
    def due(self) -> float | None:
        """When something has waited long enough."""
        times = [self._gloo.due, self._victims.due, *(due for due, _ in self._held.values())]
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> list[tuple[int, bytes]]:
        """What was held back for long enough, to be shown as it is."""
        return self._release([rank for rank, (due, _) in self._held.items() if due <= now])

    def _release(self, ranks: list[int]) -> list[tuple[int, bytes]]:
        return [(rank, self._held.pop(rank)[1]) for rank in ranks]

    def words(self, now: float | None = None) -> list[str]:
        """What to say of lines that were left out, if it is time (None: at the end)."""
        told = [
            left_out.take()
            for left_out in (self._gloo, self._victims)
            if now is None or (left_out.due is not None and left_out.due <= now)
        ]
        return [words for words in told if words]


def _begins_traceback(begun: bytearray, data: bytes) -> bool:
    """Whether a traceback begins in `data`, its first line maybe before."""
    return len(begun) > 0 and (START in data or START in begun[-len(START) :] + data[: len(START)])

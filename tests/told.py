"""Play the events of a run, and collect the findings, notes and summary that follow."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from records import end_of, failure, run_of

from mcjax_launch.features.explain.explanations import Announcer
from mcjax_launch.features.explain.rules import explain_limit
from mcjax_launch.features.recorder.sequences import MeshSequence, ProgramSequences
from mcjax_launch.journal.rank_run import DevicesAsked
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.summary import find_warnings, summarize
from mcjax_launch.wire import hook_messages as hook
from mcjax_launch.wire.frames import STDERR, Data
from mcjax_launch.wire.messages import Exited, FromHook


class Launched(NamedTuple):
    """A rank has launched a program of all ranks, given by its identity."""

    rank: int
    identity: int


#: Something that happens; a number of seconds that go by; or what a rank prints on stderr.
Event = FromHook | Exited | Launched | float | tuple[int, str]

# Longer than what becomes known may wait to be judged, with so few ranks.
_MOMENT_S = 0.01


def call(
    rank: int, size: int | None = 3, at: str = "h:1", *, of: int | None = None, **more: Any
) -> FromHook:
    """A rank calls initialize(), as this process or as another."""
    return FromHook(rank, hook.Joining(at, size, rank if of is None else of, **more))


def calls(count: int, size: int | None = None, **more: Any) -> list[Event]:
    """So many ranks do; with one value for all, or a list of each rank's."""
    each = [
        {name: v[rank] if isinstance(v, list) else v for name, v in more.items()}
        for rank in range(count)
    ]
    return [call(rank, size or count, **each[rank]) for rank in range(count)]


def said(rank: int, *messages: hook.HookMessage, **more: Any) -> list[Event]:
    """A rank's hook reports something."""
    return [FromHook(rank, message, **more) for message in messages]


def join(count: int = 3, **more: Any) -> list[Event]:
    """So many ranks call initialize(), and come through."""
    return [*calls(count, **more), *(FromHook(rank, hook.Joined(rank)) for rank in range(count))]


def fails(rank: int, summary: str = "ValueError: x", **more: Any) -> list[Event]:
    """A rank's program fails with an exception."""
    return list(said(rank, failure(summary, **more)))


def ends(rank: int, status: int = 0, printed: str = "", sent: tuple[int, ...] = ()) -> list[Event]:
    """A rank's process ends, after it has printed this."""
    return [(rank, printed), end_of(rank, status, sent)]


def launch(state: RunState, rank: int, *identities: int, at: float = 1.0) -> None:
    """Record that a rank has launched programs of all ranks, after those before."""
    if state.sequences is None:
        state.sequences = ProgramSequences()
    mesh = state.sequences.meshes.setdefault((0, 1), MeshSequence(state.ranks))
    mesh.add(rank, mesh.by_rank[rank].count + 1, identities, 0, at)


class Told:
    """A run, what has been said while it went on, and what ended it, if it could never go on.

    Args:
        events: what happens; at second 1, or later.
        ranks: how many there are.
        hosts: where they are, in turn.
        asked: the devices that an option asks for.
        known: of the run.

    """

    def __init__(
        self,
        events: Iterable[Event],
        ranks: int = 3,
        hosts: Sequence[str] = ("a",),
        asked: DevicesAsked | None = None,
        **known: Any,
    ) -> None:
        self.state = run_of(ranks, *hosts, hosts=len(set(hosts)), **known)
        for run in self.state.ranks.values():
            run.share.asked = asked
        self.announcer = Announcer(self.state)
        self.now = 1.0
        self.notes: list[str] = []
        self.end = ""
        for event in events:
            self.happens(event)

    def happens(self, event: Event, pause: float = _MOMENT_S) -> None:
        """Let this happen, and say what follows within the pause."""
        match event:
            case FromHook():
                self.state.on_from_hook(event, self.now)
                self.announcer.record(event.message, self.now)
            case Exited():
                self.state.on_exited(event, self.now)
                self.announcer.record(event, self.now)
            case Launched(rank, identity):
                launch(self.state, rank, identity, at=self.now)
            case (rank, printed):
                self.state.ranks[rank].stderr = printed
                if printed:
                    self.state.on_data(Data(rank, STDERR, printed.encode()), self.now)
            case seconds:
                self._wait(seconds)
        self._wait(pause)

    def _wait(self, seconds: float) -> None:
        """Let time go by, and say what is due."""
        end = self.now + seconds
        while (at := self.announcer.deadline) is not None and at <= end:
            self.now = max(self.now, at)
            self._announce()
        self.now = end

    def _announce(self) -> None:
        for found in self.announcer.expire(self.now) if not self.end else ():
            self.state.on_finding(found, self.now)
            if found.is_certain:
                self.end = "\n".join(filter(None, [found.words, found.hint]))
                return
            self.notes.append(found.words)

    # --- at other moments ---

    def at_limit(self) -> Sequence[str]:
        """The lines at a limit, beside where the ranks are."""
        return explain_limit(self.state, self.now)

    def summary(self) -> Sequence[str]:
        """The lines of the summary, or what is worth saying where nothing has failed."""
        return summarize(self.state).lines or find_warnings(self.state)

"""The input of rules, a view of the job at one moment, and their output, findings; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Flag, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from mcjax_launch.kernel.wire.hook_messages import Joining
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import these_ranks
from mcjax_launch.runs.rank_run import RankRun, Stage, Verdict
from mcjax_launch.runs.state import RunState

if TYPE_CHECKING:
    from mcjax_launch.diagnosis.snapshots import Stack

T = TypeVar("T")
_MOST_HOSTS = 3


class Occasion(Flag):
    """A moment at which rules are asked."""

    NOTE = auto()  # something has become known
    HANG = auto()  # ranks have stood still for long, and their positions are known
    LIMIT = auto()  # a limit has been reached, or the user asks for the stacks
    DEATH = auto()  # the rank that failed first is a victim, or may be
    SUMMARY = auto()  # a rank has failed; the root cause is known
    END = auto()  # all ranks have ended, and none has failed
    OVER = auto()  # the summary of a run that no rank's failure ended has been printed


class Fact(Flag):
    """A kind of fact that has become known, on which a rule may depend."""

    NOTHING = 0
    JAX = auto()  # a rank has imported jax, compiles, or could not join
    CALL = auto()  # a rank calls initialize()
    BELOW = auto()  # a process below a rank calls initialize()
    BACKEND = auto()  # a rank starts a backend
    NUMBER = auto()  # the number of a rank's process on a backend
    PROGRAM = auto()  # a rank is about to run a program that spans processes
    END = auto()  # a rank's process has ended
    POSITIONS = auto()  # all ranks have answered a poll


class Finding(Value):
    """A fact that explains something about the job.

    Args:
        key: identifies the finding, whose words may change over time.
        words: what happened, and where, in one line.
        ranks: the ranks that did it, the one to blame first; empty if all did it together.
        cure: what to do about it; "" if the words say that.
        since: start of a finding that lasts, in time.monotonic's seconds. It is printed again at
            ever longer intervals. None for a finding that is printed once.
        due: when to print it, if it still holds then, in time.monotonic's seconds; 0 for at once.
        is_certain: the job can never go on, and is ended.
        is_final: in that case, starting the job again would be no use.
        is_urgent: it is printed with --quiet too.

    """

    key: object
    words: str
    ranks: tuple[int, ...] = ()
    cure: str = ""
    since: float | None = None
    due: float = 0.0
    is_certain: bool = False
    is_final: bool = True
    is_urgent: bool = False

    @property
    def hint(self) -> str:
        """The cure as a line of its own; "" if there is none."""
        return f"hint: {self.cure}" if self.cure else ""


class Positions(Value):
    """Positions of the ranks' main threads at one moment.

    Args:
        stacks: of main threads, or of all threads.
        still: by rank, since when its main thread has stood still; other ranks have moved.
        computing: the ranks whose processors are busy although their main threads stand still.
        polling: the ranks on accelerators whose main threads are busy themselves.
        is_whole: the stacks are those of all threads, and no rank has used a processor.

    """

    stacks: Sequence[Stack]
    still: Mapping[int, float]
    computing: Collection[int] = ()
    polling: Collection[int] = ()
    is_whole: bool = False


class View:
    """The job at one moment, as a rule sees it.

    Args:
        state: of the run.
        now: in time.monotonic's seconds.
        positions: of the ranks; None if unknown.
        first: the rank that failed first, after a failure.
        culprit: the rank to blame for that failure.
        said: the lines already printed about that failure.
        moves: the job may not hang, but only take long.
        uses_jax: the ranks are known to need initialize().

    """

    def __init__(
        self,
        state: RunState,
        now: float,
        positions: Positions | None = None,
        first: RankRun | None = None,
        *,
        culprit: RankRun | None = None,
        said: str = "",
        moves: bool = False,
        uses_jax: bool = False,
    ) -> None:
        self.state = state
        self.now = now
        self.positions = positions
        self.first = first
        self.culprit = culprit
        self.said = said
        self.moves = moves
        self._uses_jax = uses_jax
        self._results: dict[Callable[[View], Any], Any] = {}

    @property
    def uses_jax(self) -> bool:
        """True if a rank that runs has called initialize(), or all are known to need it."""
        running = self.state.running
        return self._uses_jax or any(run.membership.joining_at is not None for run in running)

    @cached_property
    def runs(self) -> list[RankRun]:
        """The facts on all ranks."""
        return list(self.state.ranks.values())

    def named(self, ranks: Collection[int]) -> str:
        """Return ranks in words, with their hosts if the job has several and these are few."""
        hosts = sorted({self.state.ranks[rank].host for rank in ranks})
        few = self.state.hosts > 1 and len(hosts) <= _MOST_HOSTS
        return these_ranks(ranks) + (f" on {', '.join(hosts)}" if few else "")

    def named_first(self, ranks: Sequence[int], did: str) -> str:
        """Return what the first of these ranks did not do, and that the rest did not either."""
        nor = f" (nor did {these_ranks(ranks[1:])})" if ranks[1:] else ""
        return f"{self.named(ranks[:1])} {did}{nor}"

    @cached_property
    def stages(self) -> dict[int, Stage]:
        """The stage of each rank."""
        return {run.process_id: run.stage for run in self.runs}

    @cached_property
    def calls(self) -> list[tuple[RankRun, Joining]]:
        """Ranks that have called initialize(), each with its latest call."""
        calls = ((run, run.membership.call) for run in self.runs)
        return [(run, call) for run, call in calls if call is not None]

    @cached_property
    def joining(self) -> list[RankRun]:
        """The ranks that wait in initialize()."""
        stages = self.stages
        return [run for run in self.runs if stages[run.process_id] is Stage.JOINING]

    @cached_property
    def waiting(self) -> list[RankRun]:
        """The ranks that wait in initialize() for all ranks of this job."""
        size = self.state.num_processes
        return [
            run for run in self.joining if (c := run.membership.call) and c.num_processes == size
        ]

    def once(self, compute: Callable[[View], T]) -> T:
        """Return the result of a function for this view, which is called once."""
        if compute not in self._results:
            self.keep(compute, compute(self))
        found: T = self._results[compute]
        return found

    def keep(self, compute: Callable[[View], T], result: T) -> None:
        """Replace the result that `once` returns for a function."""
        self._results[compute] = result

    # --- after a failure ---

    @cached_property
    def failed(self) -> list[RankRun]:
        """The ranks that failed, in the order in which that became known."""
        return sorted((run for run in self.runs if run.failed), key=lambda run: run.order)

    @property
    def failed_joining(self) -> bool:
        """True if a failed rank had not joined the JAX job."""
        return any(run.membership.joined_at is None for run in self.failed)

    @cached_property
    def failed_text(self) -> str:
        """The last output of the failed ranks, with the texts of their exceptions."""
        from mcjax_launch.diagnosis.verdict import failure_text

        return "\n".join(map(failure_text, self.failed))

    @cached_property
    def gave_up(self) -> bool:
        """True if the rank that failed first did so because another did not come in time."""
        from mcjax_launch.diagnosis.verdict import failure_text, verdict_of
        from mcjax_launch.jax_messages.lost_peer import says_timed_out

        first = self.first
        is_victim = first is not None and verdict_of(first) is Verdict.VICTIM
        return first is not None and is_victim and says_timed_out(failure_text(first))

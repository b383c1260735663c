"""The input of rules, a view of the job at one moment, and their output, findings; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from functools import cached_property

from mcjax_launch.journal.rank_run import RankRun, Stage, Verdict
from mcjax_launch.journal.state import RunState
from mcjax_launch.ranks import format_ranks
from mcjax_launch.wire.hook_messages import Joining

_MOST_HOSTS = 3


class Moment(Enum):
    """A moment, besides the arrival of a fact, at which rules are asked."""

    HANG = auto()  # nothing has moved for long, and ranks are at different places
    LIMIT = auto()  # a limit has been reached, or the user asks for the stacks
    DEATH = auto()  # the rank that failed first is a victim, or may be
    FAILURE = auto()  # a rank has failed; the root cause is known
    END = auto()  # all ranks have ended, and none has failed
    OVER = auto()  # the summary of a run that no rank's failure ended has been printed


class View:
    """The job at one moment: the input of a rule.

    Args:
        state: state of the run.
        now: current time, in time.monotonic's seconds.
        first: the rank that failed first; None if no rank has failed.
        culprit: the rank to blame for that failure; None if unknown.
        said: the lines already printed about that failure.
        late: the ranks that do not wait while others do, if nothing moves.
        is_last: True if ranks are compared although not all are known: the job ends.

    """

    def __init__(
        self,
        state: RunState,
        now: float,
        first: RankRun | None = None,
        *,
        culprit: RankRun | None = None,
        said: str = "",
        late: Collection[int] = (),
        is_last: bool = False,
    ) -> None:
        self.state = state
        self.now = now
        self.first = first
        self.culprit = culprit
        self.said = said
        self.late = late
        self.is_last = is_last or first is not None

    @cached_property
    def runs(self) -> list[RankRun]:
        """The RankRuns of all ranks."""
        return list(self.state.ranks.values())

    def format_ranks(self, ranks: Collection[int]) -> str:
        """Return ranks in words; in a job on several hosts with these ranks' hosts, if up to 3."""
        hosts = sorted({self.state.ranks[rank].host for rank in ranks})
        few = self.state.hosts > 1 and len(hosts) <= _MOST_HOSTS
        return format_ranks(ranks) + (f" on {', '.join(hosts)}" if few else "")

    def format_statement(self, ranks: Sequence[int], did: str) -> str:
        """Return words such as "rank 1 did not join (nor did rank 2)"; `did` is the predicate."""
        nor = f" (nor did {format_ranks(ranks[1:])})" if ranks[1:] else ""
        return f"{self.format_ranks(ranks[:1])} {did}{nor}"

    @cached_property
    def stages(self) -> dict[int, Stage]:
        """The stage of each rank."""
        return {run.process_id: run.stage for run in self.runs}

    @cached_property
    def calls(self) -> list[tuple[RankRun, Joining]]:
        """Ranks that have called initialize(), each with its latest call."""
        calls = ((run, run.membership.call) for run in self.runs)
        return [(run, call) for run, call in calls if call is not None]

    @property
    def all_have_called(self) -> bool:
        """True if all ranks have called initialize(), or no more will."""
        return self.is_last or len(self.calls) == len(self.runs)

    @cached_property
    def joining(self) -> list[RankRun]:
        """The ranks that wait in initialize()."""
        stages = self.stages
        return [run for run in self.runs if stages[run.process_id] is Stage.JOINING]

    @cached_property
    def waiting(self) -> list[RankRun]:
        """The ranks that wait in initialize() with the job's number of processes.

        Not those whose call JAX refuses, because they have a backend already.
        """
        size = self.state.num_processes
        calls = ((run, run.membership.call) for run in self.joining)
        return [r for r, c in calls if c and c.num_processes == size and not c.has_backend]

    # --- after a failure ---

    @cached_property
    def failed(self) -> list[RankRun]:
        """The failed ranks, in the order in which their failures became known."""
        return sorted((run for run in self.runs if run.failed), key=lambda run: run.order)

    @property
    def failed_joining(self) -> bool:
        """True if a failed rank had not joined the JAX job."""
        return any(run.membership.joined_at is None for run in self.failed)

    @cached_property
    def failed_text(self) -> str:
        """The last output of the failed ranks, with the texts of their exceptions."""
        from mcjax_launch.features.explain.victims import get_failure_text

        return "\n".join(map(get_failure_text, self.failed))

    @cached_property
    def gave_up(self) -> bool:
        """True if the first failure was a timeout of that rank's wait for another rank."""
        from mcjax_launch.features.explain.jax_messages.lost_peer import says_timed_out
        from mcjax_launch.features.explain.victims import get_failure_text
        from mcjax_launch.journal.verdict import determine_verdict

        first = self.first
        is_victim = first is not None and determine_verdict(first) is Verdict.VICTIM
        return first is not None and is_victim and says_timed_out(get_failure_text(first))

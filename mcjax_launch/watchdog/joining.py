"""Ranks that are kept apart, reported once, as soon as they call initialize()."""

from mcjax_launch.kernel.wire.hook_messages import Joining
from mcjax_launch.runs.state import RunState

# So many numbers of processes are shown.
_MOST_NUMBERS = 8


class JoiningRanks:
    """Remembers what has been reported."""

    def __init__(self) -> None:
        self._reported: set[object] = set()
        self._are_numbered = False
        # Of the first rank: all are looked at only where another's are different.
        self._first: Joining | None = None

    def notes(self, state: RunState, rank: int) -> list[str]:
        """Lines on what has not been reported yet; call it whenever a rank calls initialize()."""
        from mcjax_launch.diagnosis.joining import elsewhere, other_version, without_partition

        call = state.ranks[rank].membership.call
        if call is None or state.ending:
            return []
        first = self._first = self._first or call
        lines = []
        suspected = {
            other_version: (call.jax, call.jaxlib) != (first.jax, first.jaxlib),
            without_partition: (call.partition is None) is not (first.partition is None),
            elsewhere: call.elsewhere,
        }
        for find, is_suspected in suspected.items():
            blame = find(state) if is_suspected and find not in self._reported else None
            if blame is not None:
                self._reported.add(find)
                lines.append(str(blame))
        return lines

    def backend_note(self, state: RunState) -> str:
        """A line on ranks with other devices, if it is new; call it when a rank starts a backend.

        It is said at once, and once more if it reads differently when all have started theirs.
        """
        from mcjax_launch.diagnosis.backends import unlike_others

        known = sum(run.membership.backend is not None for run in state.ranks.values())
        line = unlike_others(state) if not state.ending else ""
        if not line or line in self._reported:
            return ""
        if unlike_others in self._reported and known < len(state.ranks):
            return ""
        self._reported |= {unlike_others, line}
        return line

    def numbers(self, state: RunState, rank: int) -> list[str]:
        """The line on processes whose numbers are not their ranks; call it when one is known."""
        members = state.comparison_of(state.ranks[rank]).members
        known = {} if self._are_numbered else members.others(state.ranks)
        if not known:
            return []
        self._are_numbered = True
        pairs = [f"{process} is rank {known[process]}" for process in sorted(known)]
        more = ", ..." if len(pairs) > _MOST_NUMBERS else ""
        return [
            f"jax.process_index() is not the rank here: {', '.join(pairs[:_MOST_NUMBERS])}{more}"
        ]

"""Ranks that are kept apart, reported once, as soon as they call initialize()."""

from mcjax_launch.runs.state import RunState


class JoiningRanks:
    """Remembers what has been reported."""

    def __init__(self) -> None:
        self._reported: set[object] = set()
        # The versions of the first rank: all are looked at only where one has others.
        self._versions: tuple[str, str] | None = None

    def notes(self, state: RunState, rank: int) -> list[str]:
        """Lines on what has not been reported yet; call it whenever a rank calls initialize()."""
        from mcjax_launch.diagnosis.joining import elsewhere, other_version

        call = state.ranks[rank].membership.call
        if call is None or state.ending:
            return []
        versions = call.jax, call.jaxlib
        self._versions = self._versions or versions
        lines = []
        suspected = {other_version: versions != self._versions, elsewhere: call.elsewhere}
        for find, is_suspected in suspected.items():
            blame = find(state) if is_suspected and find not in self._reported else None
            if blame is not None:
                self._reported.add(find)
                lines.append(str(blame))
        return lines

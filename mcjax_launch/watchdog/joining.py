"""Ranks that are kept apart, reported once, as soon as they call initialize()."""

from mcjax_launch.run.state import RunState


class JoiningRanks:
    """Remembers what has been reported."""

    def __init__(self) -> None:
        self._reported: set[object] = set()

    def notes(self, state: RunState) -> list[str]:
        """Lines on what has not been reported yet; call it whenever a rank calls initialize()."""
        from mcjax_launch.diagnosis.joining import elsewhere, other_version

        lines = []
        for find in (other_version, elsewhere):
            blame = None if state.ending or find in self._reported else find(state)
            if blame is not None:
                self._reported.add(find)
                lines.append(str(blame))
        return lines

"""Ranks that are kept apart, reported once, as soon as they call initialize()."""

from mcjax_launch.run.state import RunState


class JoiningRanks:
    """Remembers what has been reported."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def notes(self, state: RunState) -> list[str]:
        """Lines on what has not been reported yet; call it whenever a rank calls initialize()."""
        from mcjax_launch.diagnosis.joining import elsewhere, other_version

        lines = []
        for kind in (other_version, elsewhere):
            blame = kind(state) if kind.__name__ not in self._reported else None
            if blame is not None and not state.ending:
                self._reported.add(kind.__name__)
                lines.append(str(blame))
        return lines

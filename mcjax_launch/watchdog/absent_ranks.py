"""Ranks that wait in vain, for others that have ended well or with what cannot be: said once."""

from mcjax_launch.run.state import History, RankRun

_NEVER_CAME = "ended with 0 and never called initialize(), where others wait for it"


class Missing:
    """Knows which of them have been told."""

    def __init__(self) -> None:
        self._told: set[int] = set()
        self._told_hopeless = False

    def news(self, history: History) -> list[str]:
        """What is worth saying that has not been said yet.

        To be asked whenever a rank ends and whenever one begins to wait: either may come first.
        """
        if not history.joins or history.ending:
            return []
        lines = self._hopeless(history)
        running = history.running
        awaited = any(_waits(run, history) for run in running)
        for rank, run in history.ranks.items():
            deed = _deed(run, awaited) if running and run.status == 0 else ""
            if deed and rank not in self._told:
                self._told.add(rank)
                lines.append(f"rank {rank} has {deed}")
        return lines

    def _hopeless(self, history: History) -> list[str]:
        from mcjax_launch.diagnosis.blame import hopeless

        found = None if self._told_hopeless else hopeless(history)
        if found is None:
            return []
        self._told_hopeless = True
        return [f"rank {found[0].process_id} {found[1]}"]


def _deed(run: RankRun, awaited: bool) -> str:
    """What a rank that ended with 0 has done to the others, in words that follow its name."""
    if run.joining_at is None:
        return _NEVER_CAME if awaited else ""
    if run.joined_at is not None and run.leaving_at is None:
        from mcjax_launch.diagnosis.blame import LEFT

        return LEFT
    return ""


def _waits(run: RankRun, history: History) -> bool:
    """Whether a rank is in initialize(), for all ranks of this job."""
    count = run.coordinates.num_processes if run.coordinates is not None else None
    return run.is_joining and bool(count == history.num_processes)

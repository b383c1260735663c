"""A rank to blame, and what it did."""

from typing import NamedTuple

from mcjax_launch.run.rank_run import RankRun


class Blame(NamedTuple):
    """A rank to blame for what happens to the others.

    Args:
        run: the rank's.
        action: what it did, as a phrase to follow its name.

    """

    run: RankRun
    action: str

    def __str__(self) -> str:
        return f"rank {self.run.process_id} {self.action}"

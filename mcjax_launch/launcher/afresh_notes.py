"""What is said where --preload does not do."""

from mcjax_launch.protocol.messages import StartedAfresh
from mcjax_launch.ranks import these_ranks


class AfreshNotes:
    """Words for ranks that are not forked; the same of many hosts is for --verbose alone.

    Args:
        num_ranks: that this launcher starts.

    """

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._said: set[str] = set()

    def line(self, message: StartedAfresh, host: str) -> tuple[str, bool]:
        """The line, and whether it is new.

        Args:
            message: which ranks, and why.
            host: its name; "" if there is but one.

        """
        is_new = message.reason not in self._said and not message.expected
        self._said.add(message.reason)
        where = f"host {host}: " if host else ""
        who = these_ranks(message.ranks)
        if len(message.ranks) == self._num_ranks:
            who = "the ranks"
        verb = "is" if who.startswith("rank ") else "are"
        return f"--preload: {where}{message.reason}; {who} {verb} started afresh", is_new

"""What is said where --preload does not do; pure."""

from mcjax_launch.protocol.messages import StartedAfresh
from mcjax_launch.ranks import these_ranks


def started_afresh(message: StartedAfresh, host: str, num_ranks: int) -> str:
    """The line on ranks that are not forked.

    Args:
        message: which ranks, and why.
        host: its name; "" if there is but one.
        num_ranks: that this launcher starts.

    """
    where = f"host {host}: " if host else ""
    who = these_ranks(message.ranks)
    if len(message.ranks) == num_ranks:
        who = "the ranks"
    verb = "is" if who.startswith("rank ") else "are"
    return f"--preload: {where}{message.reason}; {who} {verb} started afresh"

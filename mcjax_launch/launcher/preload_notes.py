"""What is said of --preload: which ranks were forked, and where it does not do."""

from collections.abc import Callable, Sequence

from mcjax_launch.protocol.messages import Preloaded, StartedAfresh
from mcjax_launch.ranks import these_ranks


class PreloadNotes:
    """Says it; the same of many hosts once.

    Args:
        modules: that are imported.
        num_ranks: that this launcher starts.
        note: shows a line.
        detail: shows a line that is only wanted with -v.

    """

    def __init__(
        self,
        modules: Sequence[str],
        num_ranks: int,
        note: Callable[[str], object],
        detail: Callable[[str], object],
    ) -> None:
        self._modules = ",".join(modules)
        self._num_ranks = num_ranks
        self._note = note
        self._detail = detail
        self._said: set[str] = set()

    def take(self, message: Preloaded | StartedAfresh, host: str) -> None:
        """Ranks have been forked, or have to be started afresh.

        Args:
            message: which, and why.
            host: the name of theirs; "" if there is but one.

        """
        which = these_ranks(message.ranks)
        if isinstance(message, Preloaded):
            how = "from what an earlier attempt has imported"
            if message.seconds:
                how = f"after importing {self._modules} in {message.seconds:.2f} s"
            self._detail(f"{which} forked {how}")
            return
        say = self._detail if message.expected or message.reason in self._said else self._note
        self._said.add(message.reason)
        say(started_afresh(message, host, self._num_ranks))


def started_afresh(message: StartedAfresh, host: str, num_ranks: int) -> str:
    """The line on ranks that are not forked; pure.

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

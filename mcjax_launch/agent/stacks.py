"""Python stacks of this host's ranks: which processes were asked, and when no more will come."""

from __future__ import annotations

import time

from ..protocol import messages, source_lines
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


_MOST_STACKS = 1 << 20
# A stack dump has no end mark: it is complete when nothing came for a moment. A process that has
# not begun (it is stopped, or waits for the disk) gets longer.
_QUIET_S = 0.15
_SLOWEST_S = 2.0
# How much of a line of the user's is shown.
_MOST_SOURCE = 100


if TYPE_CHECKING:
    from typing import Protocol

    class Asked(Protocol):
        """A process that has been asked."""

        rank: int
        pid: int
        last_stack_at: float

        @property
        def joined(self) -> bool: ...
        @property
        def stacks(self) -> list[str]: ...


class Importer:
    """The process that imports for ranks (--preload), of which each piece of text is a packet.

    Args:
        rank: the first of those.
        pid: its own.

    """

    joined = False

    def __init__(self, rank: int, pid: int) -> None:
        self.rank = rank
        self.pid = pid
        self.last_stack_at = 0.0
        self._text = ""

    def take(self, text: str) -> None:
        """A piece of its stack has come."""
        self.last_stack_at = time.monotonic()
        if len(self._text) < _MOST_STACKS:
            self._text += text

    @property
    def stacks(self) -> list[str]:
        """The lines of its stack."""
        return self._text.splitlines()


class StackDump:
    """A dump of stacks under way: complete when it has been quiet for a moment.

    Args:
        on_complete: is given what has come, by process.

    """

    def __init__(self, on_complete: Callable[[Iterable[messages.Stacks]], None]) -> None:
        self._on_complete = on_complete
        self._asked: Sequence[Asked] = ()
        self._since: float | None = None

    def begin(self, asked: Sequence[Asked], now: float) -> None:
        """These processes have been asked."""
        self._asked, self._since = asked, now

    @property
    def deadline(self) -> float | None:
        """When to consider the dump complete; None while none is under way."""
        if self._since is None or not self._asked:
            return self._since
        last = max(hook.last_stack_at for hook in self._asked)
        silent = any(hook.last_stack_at < self._since for hook in self._asked)
        quiet = max(last, self._since) + (_SLOWEST_S if silent else _QUIET_S)
        return min(quiet, self._since + _SLOWEST_S)

    def expire(self, now: float) -> None:
        """Hand on what has come, if it is complete."""
        deadline = self.deadline
        if deadline is not None and now >= deadline:
            self._since = None
            self._on_complete(self._collected())

    def _collected(self) -> Iterator[messages.Stacks]:
        """What has come, by process."""
        members = {hook.rank for hook in self._asked if hook.joined}
        for hook in self._asked:
            text = "\n".join(with_source(hook.stacks))
            if text:
                helper = hook.rank in members and not hook.joined
                blocked = system.blocked_in(hook.pid)
                yield messages.Stacks(
                    hook.rank,
                    hook.pid,
                    text,
                    helper=helper,
                    blocked=blocked,
                    importing=isinstance(hook, Importer),
                )


def with_source(dump: list[str]) -> list[str]:
    """A dump of stacks, with the user's lines of code after their frames."""
    from linecache import getline

    lines = []
    for line in dump:
        lines.append(line)
        file, _, rest = line[len('  File "') :].partition('", line ')
        if line.startswith('  File "/') and source_lines.is_users(file):
            number = rest.split(" ", 1)[0]
            source = getline(file, int(number)).strip() if number.isdecimal() else ""
            lines += [f"    {source[:_MOST_SOURCE]}"] if source else []
    return lines

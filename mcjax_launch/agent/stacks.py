"""Collection of Python stacks from this host's ranks, until all are complete or time is up."""

from __future__ import annotations

import os
import stat

from ..wire import messages, source_lines
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .native_stacks import NativeDump

_MOST_STACKS = 1 << 20
# A stack dump has no end mark: it is complete after a moment of quiet. A process that has not begun
# to answer (because it is stopped, or waits for the disk) gets longer. Seconds.
_QUIET_S = 0.15
_SLOWEST_S = 2.0
# Bytes; lines of longer files are not shown.
_LONGEST_SOURCE = 1 << 24
# Characters to show of a user's line.
_MOST_SOURCE = 100
_FRAME = '  File "'
# First line of a dump of a single thread.
_OWN = "Stack (most recent call first):"
#: Prefixes of a thread's first line in a dump of all threads.
THREADS = ("Thread ", "Current thread ")
# Digits of a line's number.
_LONGEST_NUMBER = 9


if TYPE_CHECKING:
    from typing import Protocol

    class StackSource(Protocol):
        """Interface of a process that was asked for its stacks."""

        rank: int
        pid: int
        last_stack_at: float
        all_stacks: bool

        @property
        def importing(self) -> bool:
            """True for the import server, which is not a rank yet."""

        @property
        def joined(self) -> bool: ...
        @property
        def stacks(self) -> list[str]: ...


class Pieces(list[str]):
    """Lines of a stack dump, with a limit on their total number of characters."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    def add(self, piece: str) -> None:
        """Append a line; drop it if the earlier lines have reached the limit."""
        if self._size < _MOST_STACKS:
            self._size += len(piece)
            self.append(piece)


class StackDump:
    """Dump of stacks in progress; it is complete after a moment of quiet.

    Args:
        on_complete: called once, with a Stacks message for each process that has sent stacks.
        native: dump of native stacks, which may follow.

    """

    def __init__(
        self, on_complete: Callable[[Iterable[messages.Stacks]], None], native: NativeDump
    ) -> None:
        self.native = native
        self._on_complete = on_complete
        self._asked: Sequence[StackSource] = ()
        self._ask_more: Callable[[], Sequence[StackSource]] | None = None
        self._awaited: Sequence[StackSource] = ()
        self._since: float | None = None
        self._latest = 0.0  # when to wait no longer

    def begin(
        self,
        asked: Sequence[StackSource],
        now: float,
        ask_more: Callable[[], Sequence[StackSource]] | None = None,
    ) -> None:
        """Start to wait for the stacks of processes that were asked by a signal.

        Args:
            asked: processes that were asked.
            now: time (time.monotonic).
            ask_more: called once when these stacks are complete; asks some of the processes for
                more and returns those, whose stacks are then awaited too.

        """
        self._asked = self._awaited = asked
        self._ask_more = ask_more
        self._since, self._latest = now, now + _SLOWEST_S

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) at which the dump counts as complete; None if there is none."""
        if self._since is None or not self._awaited:
            return self._since
        last = max(hook.last_stack_at for hook in self._awaited)
        silent = any(hook.last_stack_at < self._since for hook in self._awaited)
        quiet = max(last, self._since) + (_SLOWEST_S if silent else _QUIET_S)
        return min(quiet, self._latest)

    def expire(self, now: float) -> None:
        """Ask for more stacks (once) or call `on_complete`, if the dump counts as complete."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return
        ask_more, self._ask_more = self._ask_more, None
        if ask_more is not None and (more := ask_more()):
            self._awaited, self._since = more, now
            return
        self._since = None
        self._on_complete(self._make_messages())

    def _make_messages(self) -> Iterator[messages.Stacks]:
        """Yield a Stacks message for each process whose stacks have arrived."""
        members = {hook.rank for hook in self._asked if hook.joined}
        for hook in self._asked:
            dump = select_main_thread(hook.stacks) if hook.all_stacks else hook.stacks
            text = "\n".join(with_source(dump))
            if text:
                helper = hook.rank in members and not hook.joined
                blocked = system.find_blocking_call(hook.pid)
                yield messages.Stacks(
                    hook.rank,
                    hook.pid,
                    text,
                    helper=helper,
                    blocked=blocked,
                    importing=hook.importing,
                    others="\n".join(with_source(_select_other_threads(hook))),
                )


def _select_other_threads(hook: StackSource) -> list[str]:
    """Return the lines of the stacks of a process's informative threads, without the main thread.

    They may tell the user what the main thread waits for. The result is empty unless the process
    dumped all threads.
    """
    if not hook.all_stacks or hook.importing:
        return []
    begins = _find_thread_starts(hook.stacks)
    counted = [line for line in hook.stacks if line.startswith(source_lines.SWITCHES)]
    switches = {line.split()[2]: line for line in counted}
    others = (hook.stacks[at:end] for at, end in zip(begins, begins[1:]))
    lines = []
    for thread in filter(_is_informative, others):
        number = thread[0].split()[1]
        lines += [*thread, *([switches[number]] if number in switches else [])]
    return lines


def _is_informative(thread: list[str]) -> bool:
    """Return whether a thread runs the user's code, or waits in JAX, perhaps for a rank."""
    files = [_parse_file(line) for line in thread if line.startswith(_FRAME)]
    in_jax = bool(files) and source_lines.is_jax(files[0])
    return in_jax or any(file[:1] == "/" and source_lines.is_users(file) for file in files)


def _find_thread_starts(dump: list[str]) -> list[int]:
    """Return the index of the first line of each thread's stack in a dump."""
    return [n for n, line in enumerate(dump) if line.startswith(THREADS)]


def select_main_thread(dump: list[str]) -> list[str]:
    """Return the main thread's lines of a dump; it is the last in a dump of all threads.

    If the dump begins with a dump of the main thread alone, return that. faulthandler omits the
    last threads of more than 100; then return [].
    """
    begins = _find_thread_starts(dump)
    if dump and dump[0] == _OWN:
        return dump[: begins[0]] if begins else dump
    if not begins or "..." in dump[begins[-1] :]:
        return []
    return [_OWN, *dump[begins[-1] + 1 :]]


def waits_for_a_thread(hook: StackSource) -> bool:
    """Return whether a process's main thread may wait for another thread, by its innermost call."""
    innermost = [line for line in hook.stacks if line.startswith(_FRAME)][:1]
    frame, *source = with_source(innermost) or [""]
    return source_lines.waits_for_a_thread(_parse_file(frame), "".join(source))


def _parse_file(frame: str) -> str:
    return frame[len(_FRAME) :].partition('", line ')[0]


def with_source(dump: list[str]) -> list[str]:
    """Return a dump with the line of source added after each frame in the user's code."""
    from linecache import getline

    lines = []
    for line in dump:
        lines.append(line)
        file, _, rest = line[len(_FRAME) :].partition('", line ')
        if line.startswith(f"{_FRAME}/") and source_lines.is_users(file):
            number = rest.split(" ", 1)[0]
            is_number = number.isdecimal() and len(number) <= _LONGEST_NUMBER
            source = getline(file, int(number)).strip() if is_number and _is_source(file) else ""
            lines += [f"    {source[:_MOST_SOURCE]}"] if source else []
    return lines


def _is_source(file: str) -> bool:
    """Return whether a path is a regular file of moderate size: a dump may name any path."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST_SOURCE

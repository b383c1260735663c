"""Collection of Python stacks from this host's ranks, until all are complete or time is up."""

from __future__ import annotations

import os
import stat

from ..machine.system import get_question_signal
from ..wire import messages, source_lines
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

_MOST_STACKS = 1 << 20
# Seconds for an answer: a process may be stopped, wait for the disk, or hold Python's lock.
_SLOWEST_S = 2.0
# Bytes; lines of longer files are not shown.
_LONGEST_SOURCE = 1 << 24
# Characters to show of a user's line.
_MOST_SOURCE = 100
_FRAME = '  File "'
#: Prefixes of a thread's first line in a dump of all threads.
THREADS = ("Thread ", "Current thread ")
# Digits of a line's number.
_LONGEST_NUMBER = 9


class Pieces(list[str]):
    """Lines of a stack dump, with a limit on their total number of characters."""

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        super().__init__(pieces)
        self._size = 0

    def add(self, piece: str) -> None:
        """Append a line; drop it if the earlier lines have reached the limit."""
        if self._size < _MOST_STACKS:
            self._size += len(piece)
            self.append(piece)


class StackSource:
    """Process that can be asked for its stacks, and what it has sent of them.

    Attributes:
        rank: rank of the process; -1 if unknown.
        pid: pid of the process; 0 if unknown.
        importing: True for the import server, which is not a rank yet.
        joined: True if the process has completed initialize().
        has_answered: True if its stacks are complete, or no more can come.

    """

    importing = False
    joined = False

    def __init__(self, rank: int, pid: int) -> None:
        self.rank = rank
        self.pid = pid
        self.has_answered = False
        self._pieces = Pieces()

    @property
    def stacks(self) -> list[str]:
        """Lines of its stacks."""
        return self._pieces

    def ask(self) -> bool:
        """Ask the process for its stacks; return False if it cannot answer."""
        self._pieces, self.has_answered = Pieces(), False
        signum = get_question_signal()
        # By exec it may have become another program, which the signal would kill.
        return system.handles(self.pid, signum) and system.signal_main_thread(self.pid, signum)

    def explain_silence(self) -> str:
        """Return why the process has not answered; "" if unknown."""
        is_asked = not system.is_pending(self.pid, get_question_signal())
        return "its main thread is in C code" if is_asked else ""


class StackDump:
    """Dump of stacks in progress; it is complete when all processes have answered, or in time.

    Args:
        on_complete: called once, with a Stacks message for each process that has sent stacks.

    """

    def __init__(self, on_complete: Callable[[Iterable[messages.Stacks]], None]) -> None:
        self._on_complete = on_complete
        self._asked: Sequence[StackSource] = ()
        self._all_threads = False
        self._since: float | None = None
        self._next: tuple[Callable[[Any], object], object] | None = None

    def begin(self, sources: Iterable[StackSource], now: float, *, all_threads: bool) -> None:
        """Ask processes for their stacks.

        Args:
            sources: the processes.
            now: time (time.monotonic).
            all_threads: True to send all threads, not only those that a main thread waits for.

        """
        self._asked = [source for source in sources if source.ask()]
        self._all_threads, self._since = all_threads, now

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) of the dump's end; None if there is none."""
        if self._since is None or all(source.has_answered for source in self._asked):
            return self._since
        return self._since + _SLOWEST_S

    def expire(self, now: float) -> None:
        """Call `on_complete` if all have answered, or time is up."""
        if (deadline := self.deadline) is not None and now >= deadline:
            self._since = None
            self._on_complete(self._make_messages())
            if self._next is not None:
                (call, argument), self._next = self._next, None
                call(argument)

    def call_after(self, call: Callable[[T], object], argument: T) -> None:
        """Call a function, the last one only, when the dump is complete; now if there is none."""
        if self._since is None:
            call(argument)
        else:
            self._next = call, argument

    def find_silence(self, pid: int) -> str:
        """Return why a process has not answered; "" if unknown."""
        found = (source.explain_silence() for source in self._asked if source.pid == pid)
        return next(found, "")

    def _make_messages(self) -> Iterator[messages.Stacks]:
        """Yield a Stacks message for each process whose stacks have arrived."""
        members = {source.rank for source in self._asked if source.joined}
        for source in self._asked:
            main, others = _split(source.stacks)
            text = [*main, *others] if self._all_threads else main
            if main:
                helper = source.rank in members and not source.joined
                yield messages.Stacks(
                    source.rank,
                    source.pid,
                    "\n".join(with_source(text)),
                    helper=helper,
                    importing=source.importing,
                    others="" if self._all_threads else _select_others(main, others),
                )


def _split(dump: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines of the main thread's stack, which is the first, and of the others."""
    begins = _find_thread_starts(dump)
    return (dump[: begins[0]], dump[begins[0] :]) if begins else (dump, [])


def _select_others(main: list[str], others: list[str]) -> str:
    """Return the stacks of callbacks, and of threads for which the main thread may wait."""
    begins, waits = _find_thread_starts(others), waits_for_a_thread(main)
    threads = (others[begin:end] for begin, end in zip(begins, [*begins[1:], None]))
    lines = [
        line
        for thread in threads
        if (waits and _is_informative(thread)) or _is_callback(thread)
        for line in thread
    ]
    return "\n".join(with_source(lines))


def _is_informative(thread: list[str]) -> bool:
    """Return whether a thread runs the user's code, or waits in JAX, perhaps for a rank."""
    files = [_parse_file(line) for line in thread if line.startswith(_FRAME)]
    in_jax = bool(files) and source_lines.is_jax(files[0])
    return in_jax or any(file[:1] == "/" and source_lines.is_users(file) for file in files)


def _is_callback(thread: list[str]) -> bool:
    """Return whether a running program has called the user's code in a thread."""
    return any(_parse_file(line).endswith(source_lines.CALLBACKS) for line in thread)


def _find_thread_starts(dump: list[str]) -> list[int]:
    """Return the index of the first line of each thread's stack in a dump."""
    return [n for n, line in enumerate(dump) if line.startswith(THREADS)]


def select_main_thread(dump: list[str]) -> list[str]:
    """Return the main thread's lines of faulthandler's dump at a crash, where it is the last.

    faulthandler omits the last threads of more than 100; then return [].
    """
    begins = _find_thread_starts(dump)
    if not begins or "..." in dump[begins[-1] :]:
        return []
    return [source_lines.MAIN_THREAD, *dump[begins[-1] + 1 :]]


def waits_for_a_thread(main: list[str]) -> bool:
    """Return whether a main thread may wait for another thread, by its innermost call."""
    innermost = [line for line in main if line.startswith(_FRAME)][:1]
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

"""Collection of Python stacks from this host's ranks, until all are complete or time is up."""

from __future__ import annotations

import os
import stat

from ..wire import messages, source_lines
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Protocol

    from .native_stacks import NativeDump

    class Asking(Protocol):
        """Interface of a question to a process (`stack_question.StackQuestion`)."""

        source: StackSource

        def ask(self) -> bool: ...
        def is_unanswered(self, since: float) -> bool: ...
        def ask_again(self, since: float) -> bool: ...


_MOST_STACKS = 1 << 20
# A stack dump has no end mark: it is complete after a moment of quiet. A process that has not begun
# to answer (because it is stopped, or waits for the disk) gets longer. Seconds.
_QUIET_S = 0.15
# A main thread that is for so long in one wait stands still: its stack does not change.
_STILL_S = 0.05
# A main thread that runs Python answers within this time, even on a busy machine.
_ANSWER_S = 0.3
_SLOWEST_S = 2.0
# Bytes; lines of longer files are not shown.
_LONGEST_SOURCE = 1 << 24
# Characters to show of a user's line.
_MOST_SOURCE = 100
_FRAME = '  File "'
# First line of a dump of a single thread.
OWN = "Stack (most recent call first):"
#: Prefixes of a thread's first line in a dump of all threads.
THREADS = ("Thread ", "Current thread ")
# Digits of a line's number.
_LONGEST_NUMBER = 9


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


class StackSource:
    """Process that can be asked for its stacks, and what it has sent of them.

    Attributes:
        rank: rank of the process; -1 if unknown.
        pid: pid of the process; 0 if unknown.
        importing: True for the import server, which is not a rank yet.
        joined: True if the process has completed initialize().
        all_stacks: True if it dumps all threads, although only the main one is wanted.
        asked_all: True if it was asked for the stacks of all threads.
        last_stack_at: when the latest line came.

    """

    importing = False
    joined = False

    def __init__(self, rank: int, pid: int) -> None:
        self.rank = rank
        self.pid = pid
        self.all_stacks = self.asked_all = False
        self.last_stack_at = 0.0
        self._pieces = Pieces()

    @property
    def stacks(self) -> list[str]:
        """Lines of its stacks."""
        return self._pieces

    def expect_stacks(self) -> None:
        """Forget earlier stacks, because the process is asked for new ones."""
        self._pieces = Pieces()
        self.all_stacks = self.asked_all = False


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
        self._questions: Sequence[Asking] = ()
        self._awaited: Sequence[StackSource] = ()
        self._steps: list[Callable[[], Sequence[StackSource]]] = []  # that are still to come
        self._since: float | None = None
        self._latest = 0.0  # when to wait no longer

    def begin(self, questions: Sequence[Asking], now: float) -> None:
        """Start to ask processes for their stacks.

        Args:
            questions: questions to the processes.
            now: time (time.monotonic).

        """
        self._questions = questions
        self._awaited = ()
        self._steps = [self._ask, self._ask_again] if questions else []
        self._since, self._latest = now, now + _STILL_S + _SLOWEST_S

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) of the dump's next step; None if there is none."""
        since = self._since
        if since is None:
            return None
        if self._ask in self._steps:
            return since + _STILL_S
        if not self._awaited:
            return since
        last = max(hook.last_stack_at for hook in self._awaited)
        quiet = max(last, since) + _QUIET_S
        if any(hook.last_stack_at < since for hook in self._awaited):
            soon = self._steps and any(each.is_unanswered(since) for each in self._questions)
            quiet = max(last, since) + (_ANSWER_S if soon else _SLOWEST_S)
        return min(quiet, self._latest)

    def expire(self, now: float) -> None:
        """Ask for stacks, ask again, or call `on_complete`, if the dump's next step is due."""
        while (deadline := self.deadline) is not None and now >= deadline:
            if not self._steps:
                self._since = None
                self._on_complete(self._make_messages())
                return
            self._awaited = self._steps.pop(0)()
            self._since = now

    def _ask(self) -> Sequence[StackSource]:
        """Ask all processes; return those that will answer."""
        self._questions = [question for question in self._questions if question.ask()]
        return [question.source for question in self._questions]

    def _ask_again(self) -> Sequence[StackSource]:
        """Ask some processes for more; return those, and those that have not answered."""
        since = self._since or 0.0
        return [
            question.source
            for question in self._questions
            if question.ask_again(since) or question.source.last_stack_at < since
        ]

    def _make_messages(self) -> Iterator[messages.Stacks]:
        """Yield a Stacks message for each process whose stacks have arrived."""
        sources = [question.source for question in self._questions]
        members = {hook.rank for hook in sources if hook.joined}
        for hook in sources:
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
    if dump and dump[0] == OWN:
        return dump[: begins[0]] if begins else dump
    if not begins or "..." in dump[begins[-1] :]:
        return []
    return [OWN, *dump[begins[-1] + 1 :]]


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

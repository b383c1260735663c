"""Stacks of ranks: parses and formats them, and finds the user's own calls; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from mcjax_launch.journal.facts import Stack
from mcjax_launch.journal.rank_run import RankRun
from mcjax_launch.ranks import format_count, format_ranks
from mcjax_launch.wire import source_lines
from mcjax_launch.wire.value import Value

K = TypeVar("K")

_SOURCE = "    "  # the agent puts the user's own lines after their frames
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\S+) in (?P<name>.*)')
# More calls in a row inside one library than this are shown as the first and a count.
_FOLDED = 3
# Python's functions that run after the program's last line, and what each waits for.
_AT_END = {
    "_shutdown": "its threads",
    "_python_exit": "its threads",
    "_exit_function": "its child processes",
}


class Frame(Value):
    """A call in a stack; `name` is the function's, `source` the text of the line if known."""

    file: str
    line: str
    name: str
    source: str = ""

    @property
    def library(self) -> str:
        """The name of the file's package; "python" for the standard library, "" for user code."""
        return source_lines.find_owner(self.file)

    def __str__(self) -> str:
        file = source_lines.shorten_path(self.file)
        return f"{file}:{self.line} in {self.name}" + (f": {self.source}" if self.source else "")


class Thread(Value):
    """A thread: its calls, innermost first, and the exception that it is handling; "" for none."""

    frames: tuple[Frame, ...] = ()
    handled: str = ""


def parse_threads(text: str) -> list[Thread]:
    """Parse a dump into its threads, the current (usually the main) thread first."""
    stacks: list[list[Frame]] = []
    handled: list[str] = []
    current = 0
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ", "Stack ")):
            current = len(stacks) if line.startswith("Current") else current
            stacks.append([])
            handled.append("")
        elif stacks and (match := _FRAME.match(line)):
            # Our own frames are no concern of the user's.
            if source_lines.find_owner(match["file"]) != source_lines.OURS:
                stacks[-1].append(Frame(**match.groupdict()))
        elif stacks and stacks[-1] and line.startswith(_SOURCE):
            stacks[-1][-1] = stacks[-1][-1].copy_with(source=line.strip())
        elif stacks and line.startswith(source_lines.HANDLING):
            handled[-1] = line.removeprefix(source_lines.HANDLING)
    threads = [Thread(tuple(stack), error) for stack, error in zip(stacks, handled, strict=True)]
    return [*threads[current : current + 1], *threads[:current], *threads[current + 1 :]]


def format_stacks(stacks: Sequence[Stack]) -> list[str]:
    """Format stacks as lines: equal stacks once, those of most ranks first.

    The stacks of other threads follow those of main threads.
    """
    several = len({stack.host for stack in stacks}) > 1
    ranks = {stack.rank for stack in stacks if not stack.importing}
    whose = format_count(len(ranks), "rank") if ranks else "the imports"
    lines = [f"stacks of {whose}, innermost call first:"]
    mains: dict[tuple[Thread, str, bool, bool], list[Stack]] = {}
    others: dict[Thread, list[Stack]] = {}
    for stack in sorted(stacks, key=lambda stack: (stack.rank, stack.pid)):
        current, *more = parse_threads(stack.text) or [Thread()]
        key = current, stack.state, stack.helper, stack.importing
        mains.setdefault(key, []).append(stack)
        for thread in more:
            others.setdefault(thread, []).append(stack)
    for (current, state, helper, _), same in _sort_by_size(mains):
        name = ("helpers of " if helper else "") + _describe_processes(same, several)
        lines.append(f"{name}:" if not state else f"{name}: no Python stack: {state}")
        lines += _format_calls(current) if not state else ()
    for thread, same in _sort_by_size(others):
        lines.append(f"another thread of {_describe_processes(same, several)}:")
        lines += _format_calls(thread)
    return lines


def _sort_by_size(groups: dict[K, list[Stack]]) -> list[tuple[K, list[Stack]]]:
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0].rank))


def _describe_processes(stacks: Sequence[Stack], several_hosts: bool) -> str:
    name = format_ranks(stack.rank for stack in stacks)
    if stacks[0].importing:
        name = "the importing process" if len(stacks) == 1 else "the importing processes"
    if len(stacks) == 1:
        where = f" on {stacks[0].host}" if several_hosts else ""
        return f"{name}{where} (pid {stacks[0].pid})"
    hosts = sorted({stack.host for stack in stacks})
    return f"{name} on {', '.join(hosts)}" if several_hosts and len(hosts) <= 4 else name


def _format_calls(thread: Thread) -> Iterator[str]:
    """Yield lines for a thread: user calls marked with ">", long series in one library folded."""
    stack = thread.frames
    for library, frames in groupby(stack, lambda frame: frame.library):
        first, *more = frames
        if not library:
            yield from (f"  > {call}" for call in (first, *more))
        elif len(more) < _FOLDED:
            yield from (f"    {call}" for call in (first, *more))
        else:
            yield f"    {first}"
            yield f"    ({len(more)} more calls in {library})"
    if not stack:
        yield "    (no Python code)"
    if awaited := find_awaited_at_end(stack):
        yield f"    (the program has ended, and Python waits for {awaited})"
    if thread.handled:
        yield f"    (handling {thread.handled})"


# --- calls of the user's own ---


def find_awaited_at_end(frames: Sequence[Frame]) -> str:
    """Return what a program waits for whose last line has been executed; "" if it has not been."""
    if not frames or frames[-1].library != source_lines.PYTHON:
        return ""
    return _AT_END.get(frames[-1].name, "")


def find_user_call(frames: Iterable[Frame]) -> int | None:
    """Return the index of the innermost call of the user's own code; None if there is none."""
    own = (at for at, frame in enumerate(frames) if frame.library == source_lines.USER)
    return next(own, None)


def format_place(name: str, line: str) -> str:
    """Return a place as `in function at file:line`, or `at file:line` for a module."""
    return f"at {line}" if name == "<module>" else f"in {name} at {line}"


def find_crash_frame(run: RankRun) -> Frame | None:
    """Return the innermost call of the user's code in a crashed rank; None if unknown."""
    stacks, at_limit = run.process.stack, False
    if not stacks:
        from mcjax_launch.features.explain.jax_messages.crashes import find_stacks

        stacks, at_limit = find_stacks(run.stderr)
    threads = parse_threads(stacks) or [Thread()]
    frames = threads[-1 if at_limit else 0].frames  # at a limit the main thread is the last
    at = find_user_call(frames)
    return frames[at] if at is not None else None

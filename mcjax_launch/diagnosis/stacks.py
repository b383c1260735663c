"""Python stacks of ranks, for a person to read: equal ones once, the biggest group first; pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from mcjax_launch.kernel.wire import source_lines
from mcjax_launch.ranks import counted, these_ranks

K = TypeVar("K")

_SOURCE = "    "  # the agent puts the user's own lines after their frames
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\S+) in (?P<name>.*)')
# More calls in a row inside one library than this are shown as the first and a count.
_FOLDED = 3


@dataclass(frozen=True)
class Stack:
    """The stacks of one process of a rank.

    Args:
        text: faulthandler's dump; empty if the process has no hook.
        state: in that case, what the kernel knows of the process.
        helper: another process of the rank is the one that takes part in the job.
        blocked: where in the kernel its main thread waits, "" where that is not known.
        importing: it imports for ranks, and is none of theirs.
        others: the stacks of other threads that run code of the user's, not for a person to read.

    """

    rank: int
    host: str
    pid: int
    text: str
    state: str = ""
    helper: bool = False
    blocked: str = ""
    importing: bool = False
    others: str = ""


@dataclass(frozen=True)
class Frame:
    """One call in a stack."""

    file: str
    line: str
    name: str
    source: str = ""

    @property
    def library(self) -> str:
        """The package that it belongs to, or "python"; empty for the user's own code."""
        return source_lines.owner(self.file)

    def __str__(self) -> str:
        file = source_lines.shortened(self.file)
        return f"{file}:{self.line} in {self.name}" + (f": {self.source}" if self.source else "")


def threads(text: str) -> list[tuple[Frame, ...]]:
    """The stack of each thread of a dump, the current one (as a rule the main one) first."""
    stacks: list[list[Frame]] = []
    current = 0
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ", "Stack ")):
            current = len(stacks) if line.startswith("Current") else current
            stacks.append([])
        elif stacks and (match := _FRAME.match(line)):
            if source_lines.owner(match["file"]) != source_lines.OURS:  # no concern of the user's
                stacks[-1].append(Frame(**match.groupdict()))
        elif stacks and stacks[-1] and line.startswith(_SOURCE):
            stacks[-1][-1] = replace(stacks[-1][-1], source=line.strip())
    if stacks:
        stacks.insert(0, stacks.pop(current))
    return [tuple(stack) for stack in stacks]


def stack_lines(stacks: Sequence[Stack]) -> list[str]:
    """All stacks: that of most ranks first; below them all, the ranks' other threads."""
    several = len({stack.host for stack in stacks}) > 1
    ranks = {stack.rank for stack in stacks if not stack.importing}
    whose = counted(len(ranks), "rank") if ranks else "the imports"
    lines = [f"stacks of {whose}, innermost call first:"]
    mains: dict[tuple[tuple[Frame, ...], str, bool, bool], list[Stack]] = {}
    others: dict[tuple[Frame, ...], list[Stack]] = {}
    for stack in sorted(stacks, key=lambda stack: (stack.rank, stack.pid)):
        current, *more = threads(stack.text) or [()]
        key = current, stack.state, stack.helper, stack.importing
        mains.setdefault(key, []).append(stack)
        for thread in more:
            others.setdefault(thread, []).append(stack)
    for (current, state, helper, _), same in _biggest_first(mains):
        name = ("helpers of " if helper else "") + _name(same, several)
        lines.append(f"{name}:" if not state else f"{name}: no Python stack: {state}")
        lines += _calls(current) if not state else ()
    for thread, same in _biggest_first(others):
        lines.append(f"another thread of {_name(same, several)}:")
        lines += _calls(thread)
    return lines


def _biggest_first(groups: dict[K, list[Stack]]) -> list[tuple[K, list[Stack]]]:
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0].rank))


def _name(same: Iterable[Stack], several_hosts: bool) -> str:
    stacks = list(same)
    name = these_ranks(stack.rank for stack in stacks)
    if stacks[0].importing:
        name = "the importing process" if len(stacks) == 1 else "the importing processes"
    if len(stacks) == 1:
        where = f" on {stacks[0].host}" if several_hosts else ""
        return f"{name}{where} (pid {stacks[0].pid})"
    hosts = sorted({stack.host for stack in stacks})
    return f"{name} on {', '.join(hosts)}" if several_hosts and len(hosts) <= 4 else name


def _calls(stack: Sequence[Frame]) -> Iterator[str]:
    """Lines for a stack: the user's calls marked, a library's own folded."""
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

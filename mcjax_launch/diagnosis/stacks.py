"""Python stacks of ranks, for a person to read: equal ones once, the odd ones apart; pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mcjax_launch.protocol import source_lines
from mcjax_launch.ranks import these_ranks

_SOURCE = "    "  # the agent puts the user's own lines after their frames
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\S+) in (?P<name>.*)')
# Of calls inside one library, one after another: the first, and how many there are more.
_FOLDED = 3


@dataclass(frozen=True)
class Stack:
    """What one process of a rank said when asked for its stacks.

    Args:
        text: faulthandler's dump; empty where there is no hook to ask.
        state: then, what the kernel knows of the process.
        helper: another process of the rank is the one that takes part in the job.

    """

    rank: int
    host: str
    pid: int
    text: str
    state: str = ""
    helper: bool = False


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
    """The stack of each thread of a dump, the asked one (as a rule the main one) first."""
    found: list[list[Frame]] = []
    asked = 0
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ", "Stack ")):
            asked = len(found) if line.startswith("Current") else asked
            found.append([])
        elif found and (match := _FRAME.match(line)):
            if source_lines.owner(match["file"]) != source_lines.OURS:  # nobody's concern
                found[-1].append(Frame(**match.groupdict()))
        elif found and found[-1] and line.startswith(_SOURCE):
            found[-1][-1] = replace(found[-1][-1], source=line.strip())
    if found:
        found.insert(0, found.pop(asked))
    return [tuple(stack) for stack in found]


def in_words(stacks: Sequence[Stack]) -> str:
    """All stacks: the one of most ranks first; below each the ranks' other threads."""
    several = len({stack.host for stack in stacks}) > 1
    ranks = {stack.rank for stack in stacks}
    lines = [f"stacks of {len(ranks)} rank{'s' * (len(ranks) > 1)}, innermost call first:"]
    mains: dict[tuple[object, ...], list[Stack]] = {}
    others: dict[tuple[Frame, ...], list[Stack]] = {}
    for stack in sorted(stacks, key=lambda stack: (stack.rank, stack.pid)):
        asked, *more = threads(stack.text) or [()]
        mains.setdefault((asked, stack.state, stack.helper), []).append(stack)
        for thread in more:
            others.setdefault(thread, []).append(stack)
    for (asked, state, helper), same in _biggest_first(mains):
        name = ("helpers of " if helper else "") + _name(same, several)
        lines.append(f"{name}:" if not state else f"{name}: no Python stack; {state}")
        lines += _calls(asked) if not state else ()
    for thread, same in _biggest_first(others):
        lines.append(f"another thread of {_name(same, several)}:")
        lines += _calls(thread)
    return "\n".join(lines)


def _biggest_first(groups: dict[tuple, list[Stack]]) -> list[tuple[tuple, list[Stack]]]:  # type: ignore[type-arg]
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0].rank))


def _name(same: Iterable[Stack], several_hosts: bool) -> str:
    stacks = list(same)
    name = these_ranks(stack.rank for stack in stacks)
    if len(stacks) == 1:
        where = f" on {stacks[0].host}" if several_hosts else ""
        return f"{name}{where} (pid {stacks[0].pid})"
    hosts = sorted({stack.host for stack in stacks})
    return f"{name} on {', '.join(hosts)}" if several_hosts and len(hosts) <= 4 else name


def _calls(stack: Sequence[Frame]) -> Iterator[str]:
    """Lines for a stack: the user's calls marked, a library's own folded."""
    at = 0
    while at < len(stack):
        frame = stack[at]
        after = at + 1
        while after < len(stack) and frame.library and stack[after].library == frame.library:
            after += 1
        if not frame.library:
            yield f"  > {frame}"
        elif after - at <= _FOLDED:
            yield from (f"    {call}" for call in stack[at:after])
        else:
            yield f"    {frame}"
            yield f"    ({after - at - 1} more calls of {frame.library})"
        at = after
    if not stack:
        yield "    (no Python code)"

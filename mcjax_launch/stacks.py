"""Python stacks of ranks, for a person to read; pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stack:
    """What one process of a rank said when asked for its stacks.

    Args:
        text: faulthandler's dump; empty where there is no hook to ask.
        state: then, what the kernel knows of the process.

    """

    rank: int
    host: str
    pid: int
    text: str
    state: str = ""


def in_words(stacks: Sequence[Stack]) -> str:
    """All stacks, in order of rank."""
    lines = [f"stacks of {len({stack.rank for stack in stacks})} ranks:"]
    for stack in sorted(stacks, key=lambda stack: (stack.rank, stack.pid)):
        if not stack.text:
            lines.append(f"{_name(stack)}: no Python to ask; {stack.state}")
            continue
        lines.append(f"{_name(stack)}:")
        lines += [f"  {line}" for line in stack.text.splitlines() if line.strip()]
    return "\n".join(lines)


def _name(stack: Stack) -> str:
    return f"rank {stack.rank} on {stack.host} (pid {stack.pid})"

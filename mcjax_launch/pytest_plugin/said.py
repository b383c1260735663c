"""What the launcher says on its stderr, made fit for the report of a test; pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

OWN = "mcjax-launch: "
_CAUSE = re.compile(r"(?:(\d+ ranks) failed, )?rank (\d{1,9})(?: failed| first): (.*)")
_OF_RANK = re.compile(r"\[ *(\d{1,9})\] ?(.*)")
_LEFT = "exited with 0"
_USERS = "  > "
# The calls below a test or a fixture, in the launcher's stacks and in faulthandler's.
_BELOW = re.compile(
    r"    (_pytest|pluggy)/|  File \".*/(_pytest|pluggy|mcjax_launch/pytest_plugin)/"
)
_EXTENSIONS = "Extension modules: "
# Hints that name an option of the command are of no use here.
_OF_COMMAND = re.compile(r"hint: .*(?<!\w)-{1,2}[a-z]")
_MOST_LINES = 100


def cause(lines: Iterable[str]) -> tuple[int, str] | None:
    """The rank that is to blame, and what happened to it, of a job that has failed."""
    for line in lines:
        if line.startswith(OWN) and (match := _CAUSE.match(line.removeprefix(OWN))):
            alike = f" ({match[1]} did)" if match[1] else ""
            return int(match[2]), match[3] + alike
    return None


def some_left(lines: Iterable[str]) -> bool:
    """Whether a rank has ended with status 0: for the launcher alone that is no crash."""
    return any(line.startswith(OWN) and _LEFT in line for line in lines)


def of_rank(lines: Iterable[str], rank: int) -> list[str]:
    """The last lines of a rank, without pytest's calls below the test's in faulthandler's dump."""
    kept = []
    below = False
    for line in lines:
        match = _OF_RANK.fullmatch(line)
        if match is None or int(match[1]) != rank:
            continue
        below = match[2].startswith("  File ") and (below or _BELOW.match(match[2]) is not None)
        if not below and not match[2].startswith(_EXTENSIONS):
            kept.append(match[2])
    return "\n".join(kept[-_MOST_LINES:]).strip().splitlines()


def stacks(lines: Iterable[str], *, hints: bool) -> list[str]:
    """The launcher's account of where ranks are, without those that wait for the next test.

    Args:
        hints: with what may explain a hang.

    """
    parts: list[list[str]] = []
    for line in lines:
        text = line.removeprefix(OWN)
        if not line.startswith(OWN) or "innermost call first:" in text:
            continue
        if text.startswith("hint: ") and (not hints or _OF_COMMAND.match(text)):
            continue
        if text.startswith("  ") and parts:
            parts[-1].append(text)
        else:
            parts.append([text])
    return [line for part in parts for line in _part(part)]


def _part(lines: Sequence[str]) -> Iterator[str]:
    """A stack with what is the test's own, or one line about all ranks."""
    if len(lines) == 1:
        yield lines[0]
        return
    calls = lines[1:]
    users = [at for at, call in enumerate(calls) if call.startswith(_USERS)]
    if users:
        kept = calls[: users[-1] + 1]
    else:
        end = next((at for at, call in enumerate(calls) if _BELOW.match(call)), len(calls))
        kept = calls[:end]
        if any("multiprocessing/connection.py" in call for call in kept):
            return
    yield re.sub(r" \(pid \d+\)", "", lines[0])
    yield from kept

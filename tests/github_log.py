"""Parse a GitHub Actions log as its runner does: commands, and plain text."""

import re
from dataclasses import dataclass, field

# In the order in which they are undone: the sign that begins an escape last.
_DATA = (("%0D", "\r"), ("%0A", "\n"), ("%25", "%"))
_PROPERTY = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))
_KNOWN = {"error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "stop-commands"}


@dataclass
class Command:
    """A command, its escapes undone."""

    name: str
    data: str
    properties: dict[str, str] = field(default_factory=dict)


@dataclass
class Log:
    """What the runner makes of a log: lines of text, and commands."""

    text: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


def _undone(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    for escape, char in escapes:
        text = text.replace(escape, char)
    return text


def parsed(line: str) -> Command | None:
    """The command in a line; None if it is text."""
    new = re.match(r"\s*::([^ ]+?)(?: (.*?))?::(.*)", line)
    if new and new[1].lower() in _KNOWN:
        pairs = [pair.partition("=") for pair in (new[2] or "").split(",") if pair]
        properties = {key.strip(): _undone(value, _PROPERTY) for key, _, value in pairs}
        return Command(new[1].lower(), _undone(new[3], _DATA), properties)
    old = re.search(r"##\[([^ \]]+)[^\]]*\](.*)", line)
    return Command(old[1], old[2]) if old and old[1].lower() in _KNOWN else None


def read(text: str) -> Log:
    """Read a log as the runner does."""
    log = Log()
    for line in text.splitlines():
        command = parsed(line)
        if command is None:
            log.text.append(line)
        else:
            log.commands.append(command)
    return log

"""A log of GitHub Actions as its runner reads it: commands, and what is text."""

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
    """What the runner makes of a log.

    Attributes:
        text: the lines outside of groups.
        groups: the lines in each group.
        commands: those that are neither of groups nor of stopping.

    """

    text: list[str] = field(default_factory=list)
    groups: dict[str, list[str]] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)


def _undone(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    for escape, char in escapes:
        text = text.replace(escape, char)
    return text


def parsed(line: str, known: set[str]) -> Command | None:
    """The command in a line; None if it is text."""
    new = re.match(r"\s*::([^ ]+?)(?: (.*?))?::(.*)", line)
    if new and new[1].lower() in known:
        pairs = [pair.partition("=") for pair in (new[2] or "").split(",") if pair]
        properties = {key.strip(): _undone(value, _PROPERTY) for key, _, value in pairs}
        return Command(new[1].lower(), _undone(new[3], _DATA), properties)
    old = re.search(r"##\[([^ \]]+)[^\]]*\](.*)", line)
    return Command(old[1], old[2]) if old and old[1].lower() in known else None


def read(text: str) -> Log:
    """Read a log as the runner does."""
    log, group, token = Log(), "", ""
    for line in text.splitlines():
        command = parsed(line, {token} if token else _KNOWN)
        match command:
            case None:
                (log.groups[group] if group else log.text).append(line)
            case Command(name) if token:
                assert name == token
                token = ""
            case Command("stop-commands", data):
                token = data
            case Command("group", data):
                assert data not in log.groups and not group
                group = data
                log.groups[group] = []
            case Command("endgroup"):
                assert group
                group = ""
            case _:
                log.commands.append(command)
    assert not group and not token
    return log

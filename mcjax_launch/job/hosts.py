"""Hosts, and the parsing of files and lists of hosts; pure.

One host per line, as `[user@]name [slots=K] [port=P] [python=PATH] [chdir=DIR]`, `name:K` as MPICH
writes it, `node[01-16]` as Slurm does, `#` comments. Files of Open MPI and DeepSpeed are read
unchanged; naming a host again adds to its slots.

A file or a variable may hold anything, so every number and every product is bounded before it is
computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mcjax_launch.errors import LaunchError
from mcjax_launch.ranks import MOST_RANKS, parse_whole_number
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import escape_unprintable

LOCAL = "localhost"
# Settings of Open MPI that have no effect here.
_IGNORED = frozenset(
    ("max_slots", "max-slots", "max", "cpus", "count", "sockets", "cores", "username", "user_name")
)
# Patterns, not compiled here: most runs read no hosts file, and all wait for this import.
# Names have no character that a shell acts on: a --via template may pass a name to one.
_USER = r"[\w.+=-]+"
_NAME = r"[\w.:%/+=~-]+"
_LONGEST_NAME = 255
_RANGE = r"\[([0-9,\-]+)\]"
_LONGEST_NUMBER = 18
_MOST_HOSTS = MOST_RANKS
# A higher number after `name:` is likely the port of an sshd.
_MOST_PLAUSIBLE = 1024
_MOST = {"slots": MOST_RANKS, "port": 65_535}


class Host(Value, kw_only=True):
    """A machine that runs ranks.

    Args:
        name: name for the transport; "localhost" is the launcher's own machine.
        slots: maximum number of ranks on the host.
        user: login name; None for ssh's default.
        port: port of its sshd; None for ssh's default.
        python: interpreter of its ranks; None for the job's.
        chdir: working directory of its ranks; None for the job's.
        gpus: number of its GPUs that a scheduler has assigned to the job; None if unknown.
        here: True if `name` is a name of this machine.

    """

    name: str
    slots: int
    user: str | None = None
    port: int | None = None
    python: str | None = None
    chdir: str | None = None
    gpus: int | None = None
    here: bool = False

    @property
    def is_local(self) -> bool:
        """True if ranks start without a transport: on this machine, given without user and port."""
        return self.here or (self.name == LOCAL and self.user is None and self.port is None)

    @property
    def login(self) -> str:
        """Login name and host, as `[user@]name`."""
        return f"{self.user}@{self.name}" if self.user else self.name


def parse_file(text: str, origin: str, default_slots: int) -> tuple[Host, ...]:
    """Return the hosts of a hosts file.

    Args:
        text: content of the file.
        origin: name of the file, for errors.
        default_slots: slots of a host without slots=.

    Raises:
        LaunchError: a line cannot be read; the message begins with `origin:line`.

    """
    hosts: _Hosts = {}
    for number, line in enumerate(text.split("\n"), 1):
        words = re.sub(r"(?<!\s)\s*+=\s*", "=", line.partition("#")[0]).split()
        try:
            _add(hosts, _parse_line(words, default_slots) if words else (), number)
        except ValueError as error:
            raise LaunchError(f"{origin}:{number}: {error}") from None
    if not hosts:
        raise LaunchError(f"{origin}: no hosts listed")
    return tuple(host for host, _ in hosts.values())


def parse_list(text: str, default_slots: int, option: str = "--hosts ") -> tuple[Host, ...]:
    """Return the hosts of a list such as `a,b:2,node[01-03]`.

    Args:
        text: the list.
        default_slots: slots of a host without a number.
        option: source of the list, for errors, to be followed by the list.

    Raises:
        LaunchError: the list cannot be read.

    """
    hosts: _Hosts = {}
    for word in _split_list(text):
        try:
            if not word.strip():
                raise ValueError("a host name is missing")
            _add(hosts, _parse_line([word.strip()], default_slots), 1)
        except ValueError as error:
            raise LaunchError(f"{option}{text}: {error}") from None
    return tuple(host for host, _ in hosts.values())


def _split_list(text: str) -> list[str]:
    """Split a text at the commas outside brackets."""
    parts, begin = [], 0
    for match in re.finditer(r",|\[[^\]]*+", text):  # brackets match as a whole, and are skipped
        if match[0] == ",":
            parts.append(text[begin : match.start()])
            begin = match.end()
    return [*parts, text[begin:]]


def _parse_line(words: list[str], default_slots: int) -> Iterator[Host]:
    first, *settings = words
    login, colon, slots = first.rpartition(":")
    if not colon or not slots.isdigit() or (":" in login and not login.endswith("]")):
        login, slots = first, ""  # not `name:K`, maybe an IPv6 address
    if len(slots) < _LONGEST_NUMBER and _MOST_PLAUSIBLE < int(slots or 0) <= _MOST["port"]:
        raise ValueError(
            f"{first!r}: port={slots} or slots={slots}? write one of them after the name, in a "
            "hosts file"
        )
    user, at, pattern = login.rpartition("@")
    if pattern.startswith("[") and pattern.endswith("]") and ":" in pattern:  # IPv6, and no range
        pattern = pattern[1:-1]
    if at and not re.fullmatch(_USER, user):
        raise ValueError(f"{login!r} is not a valid host name: {user!r} is not a valid user name")
    host = Host(
        name=pattern,
        slots=_parse_number("slots", slots, MOST_RANKS) if slots else default_slots,
        user=user if at else None,
    )
    for setting in settings:
        host = _apply_setting(host, setting)
    for name in expand(pattern):
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"'{escape_unprintable(name)}' is not a valid host name")
        if name.startswith("-") or user.startswith("-"):
            raise ValueError(f"{first!r}: a name must not start with '-'")
        yield host.copy_with(name=name)


def _apply_setting(host: Host, setting: str) -> Host:
    key, equals, value = setting.partition("=")
    key = key.lower()
    if not equals or not value:
        raise ValueError(f"{setting!r}: expected slots=K, port=P, python=PATH or chdir=DIR")
    if key in _MOST:
        return host.copy_with(**{key: _parse_number(key, value, _MOST[key])})
    if key in ("python", "chdir"):
        return host.copy_with(**{key: value})
    if key in _IGNORED:
        return host
    raise ValueError(f"unknown setting {key!r}: valid ones are slots, port, python and chdir")


def _parse_number(key: str, value: str, most: int) -> int:
    try:
        return parse_whole_number(value, 1, most)
    except ValueError as error:
        raise ValueError(f"{key}={value} is {error}") from None


def expand(pattern: str) -> list[str]:
    """Return the names in a pattern such as `rack[1-2]n[01-04,7]`.

    Raises:
        ValueError: the brackets cannot be read, a name is too long, or there are too many names.

    """
    parts = re.split(_RANGE, pattern)
    texts, ranges = parts[::2], parts[1::2]
    if any("[" in text or "]" in text for text in texts):
        raise ValueError(f"{pattern!r}: expected a range such as node[01-16]")
    if sum(map(len, texts)) + len(ranges) > _LONGEST_NAME:
        raise ValueError(f"{pattern!r}: a host name has {_LONGEST_NAME} characters at most")
    names = texts[:1]
    for numbers, text in zip(map(_expand_range, ranges), texts[1:], strict=True):
        if len(names) * len(numbers) > _MOST_HOSTS:
            raise ValueError(f"{pattern!r}: more than {_MOST_HOSTS} hosts")
        names = [f"{name}{number}{text}" for name in names for number in numbers]
    return names


def _expand_range(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        are_short = len(low) + len(high) <= 2 * _LONGEST_NUMBER
        if not (low.isdigit() and high.isdigit() and are_short and int(low) <= int(high)):
            raise ValueError(f"[{text}]: expected a range such as 01-16")
        first, last = int(low), int(high)
        if last - first + len(numbers) >= _MOST_HOSTS:
            raise ValueError(f"[{text}]: more than {_MOST_HOSTS} hosts")
        numbers += [f"{number:0{len(low)}}" for number in range(first, last + 1)]
    return numbers


# Hosts by name, user and port, each with the line that named it first.
_Hosts = dict[tuple[str, str | None, int | None], tuple[Host, int]]


def _add(hosts: _Hosts, named: Iterable[Host], line: int) -> None:
    """Add the hosts of a line to `hosts`; the slots of a host named before add up.

    Raises:
        ValueError: a host was named before with other settings, or there are too many.

    """
    for host in named:
        key = host.name, host.user, host.port
        if key in hosts:
            known, first = hosts[key]
            _check_agreement(host, known, first)
            hosts[key] = known.copy_with(slots=known.slots + host.slots), first
        elif len(hosts) == _MOST_HOSTS:
            raise ValueError(f"more than {_MOST_HOSTS} hosts")
        else:
            hosts[key] = host, line


def _check_agreement(host: Host, known: Host, line: int) -> None:
    """Refuse a host whose python or chdir differs from the line that named it first.

    Raises:
        ValueError: a setting differs.

    """
    for key in ("python", "chdir"):
        now, before = getattr(host, key), getattr(known, key)
        if now != before:
            there = f"{key}={before}" if before else f"no {key}="
            here = f"{key}={now}" if now else f"no {key}="
            raise ValueError(
                f"{host.name} has {here} here and {there} on line {line}: a host's lines must agree"
            )

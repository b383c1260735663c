"""Hosts, and the files and lists that name them; pure.

One host per line, as `[user@]name [slots=K] [port=P] [python=PATH] [chdir=DIR]`, `name:K` as MPICH
writes it, `node[01-16]` as Slurm does, `#` comments. Open MPI's and DeepSpeed's files are read as
they are; naming a host again adds to its slots.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from mcjax_launch.errors import LaunchError

LOCAL = "localhost"
# Settings of Open MPI's that make no difference here.
_IGNORED = frozenset(
    ("max_slots", "max-slots", "max", "cpus", "count", "sockets", "cores", "username", "user_name")
)
# Not compiled here: most runs read no hosts file, and all wait for this import.
_NAME = r"(?:(?P<user>[^\s@:\[\]]+)@)?(?P<name>[^\s@]+)"
_RANGE = r"\[([0-9,\-]+)\]"
_MOST_OF_A_RANGE = 65_536


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that runs ranks.

    Args:
        name: as the transport knows it; "localhost" is the launcher's own machine.
        slots: the number of ranks that it takes.
        user: to log in as; None for ssh's default, as for the port.
        port: of its sshd.
        python: interpreter of its ranks, if not the job's.
        chdir: working directory of its ranks, if not the job's.
        gpus: that a scheduler has assigned to the job there, where it says so.

    """

    name: str
    slots: int
    user: str | None = None
    port: int | None = None
    python: str | None = None
    chdir: str | None = None
    gpus: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, reached without a transport."""
        return self.name == LOCAL and self.user is None and self.port is None

    @property
    def login(self) -> str:
        """`[user@]name`."""
        return f"{self.user}@{self.name}" if self.user else self.name


def parse_file(text: str, origin: str, default_slots: int) -> tuple[Host, ...]:
    """The hosts of a hosts file.

    Args:
        text: its content.
        origin: its name, for errors.
        default_slots: of hosts without slots=.

    Raises:
        LaunchError: a line cannot be read; as `origin:line`.

    """
    hosts: list[Host] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = re.sub(r"\s*=\s*", "=", line.partition("#")[0]).split()
        if words:
            try:
                hosts += _parse_line(words, default_slots)
            except ValueError as error:
                raise LaunchError(f"{origin}:{number}: {error}") from None
    return _merged(hosts, origin)


def parse_list(text: str, default_slots: int) -> tuple[Host, ...]:
    """The hosts of a list such as `a,b:2,node[01-03]`.

    Raises:
        LaunchError: it cannot be read.

    """
    hosts: list[Host] = []
    for word in re.split(r",(?![^\[]*\])", text):
        try:
            if not word.strip():
                raise ValueError("a host name is missing")
            hosts += _parse_line([word.strip()], default_slots)
        except ValueError as error:
            raise LaunchError(f"--hosts {text}: {error}") from None
    return _merged(hosts, f"--hosts {text}")


def _parse_line(words: list[str], default_slots: int) -> Iterator[Host]:
    first, *settings = words
    pattern, colon, slots = first.rpartition(":")
    if not colon or not slots.isdigit() or ":" in pattern:  # not `name:K`, maybe an IPv6 address
        pattern, slots = first, ""
    host = Host(name=pattern, slots=_positive("slots", slots) if slots else default_slots)
    for setting in settings:
        host = _with_setting(host, setting)
    match = re.fullmatch(_NAME, pattern)
    if match is None:
        raise ValueError(f"{pattern!r} is not a valid host name")
    for name in expand(match["name"]):
        if name.startswith("-") or (match["user"] or "").startswith("-"):
            raise ValueError(f"{first!r}: a name must not start with '-'")
        yield replace(host, name=name, user=match["user"])


def _with_setting(host: Host, setting: str) -> Host:
    key, equals, value = setting.partition("=")
    key = key.lower()
    if not equals or not value:
        raise ValueError(f"{setting!r}: expected slots=K, port=P, python=PATH or chdir=DIR")
    if key == "slots":
        return replace(host, slots=_positive(key, value))
    if key == "port":
        return replace(host, port=_positive(key, value))
    if key == "python":
        return replace(host, python=value)
    if key == "chdir":
        return replace(host, chdir=value)
    if key in _IGNORED:
        return host
    raise ValueError(f"unknown setting {key!r}: valid ones are slots, port, python and chdir")


def _positive(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ValueError(f"{key}={value}: expected a whole number of 1 or more")
    return int(value)


def expand(pattern: str) -> list[str]:
    """The names in a pattern such as `rack[1-2]n[01-04,7]`.

    Raises:
        ValueError: its brackets cannot be read.

    """
    match = re.search(_RANGE, pattern)
    if match is None:
        if "[" in pattern or "]" in pattern:
            raise ValueError(f"{pattern!r}: expected a range such as node[01-16]")
        return [pattern]
    before, after = pattern[: match.start()], expand(pattern[match.end() :])
    return [f"{before}{middle}{rest}" for middle in _numbers(match[1]) for rest in after]


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not low.isdigit() or not high.isdigit() or int(high) < int(low):
            raise ValueError(f"[{text}]: expected a range such as 01-16")
        if int(high) - int(low) >= _MOST_OF_A_RANGE:
            raise ValueError(f"[{text}]: more than {_MOST_OF_A_RANGE} hosts")
        numbers += [f"{number:0{len(low)}}" for number in range(int(low), int(high) + 1)]
    return numbers


def _merged(hosts: Iterable[Host], origin: str) -> tuple[Host, ...]:
    """One entry per host, with all its slots."""
    merged: dict[tuple[str, str | None, int | None], Host] = {}
    for host in hosts:
        key = host.name, host.user, host.port
        if key in merged:
            host = replace(merged[key], slots=merged[key].slots + host.slots)
        merged[key] = host
    if not merged:
        raise LaunchError(f"{origin}: no hosts listed")
    return tuple(merged.values())

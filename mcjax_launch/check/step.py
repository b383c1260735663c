"""A part of a check, and how it went; and what its lines are made of; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from mcjax_launch.check.found import HostFound
from mcjax_launch.check.names import some
from mcjax_launch.protocol.value import Value

Verdict = Literal["ok", "warning", "FAILED", "not run"]


class Step(Value, kw_only=True):
    """A part of the check, and how it went.

    Args:
        text: in a few words.
        details: what is wrong, a line each.
        seconds: how long it took, where that means something.

    """

    name: str
    verdict: Verdict = "ok"
    text: str
    details: tuple[str, ...] = ()
    seconds: float | None = None


def common(values: Sequence[str]) -> str:
    """The most frequent of these; of equally frequent ones the first."""
    return Counter(values).most_common(1)[0][0] if values else ""


def by_text(hosts: Sequence[HostFound], text: Callable[[HostFound], str]) -> Iterator[str]:
    """A line for all hosts of which the same is to be said."""
    alike: dict[str, list[str]] = {}
    for host in hosts:
        alike.setdefault(text(host), []).append(host.name)
    for said, names in alike.items():
        yield f"{some(names)}: {said}"


def unlike(hosts: Sequence[HostFound], text: Callable[[HostFound], str]) -> Iterator[str]:
    """Hosts of which something else is to be said than of most."""
    usual = common([text(host) for host in hosts])
    others = [host for host in hosts if text(host) != usual]
    return by_text(others, lambda host: f"{text(host)}, elsewhere {usual}")

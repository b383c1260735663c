"""What a check has found out: of hosts, judged, and in lines for a person; pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from mcjax_launch.features.check.messages import (
    DevicesCounted,
    NetworkInterface,
    PythonFacts,
    Surveyed,
)
from mcjax_launch.job.gpus import GpuShares
from mcjax_launch.kernel.launcher.peers import Gap
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.wording import some, visible

Verdict = Literal["ok", "note", "warning", "error"]
_VERDICT_WIDTH, _TOPIC_WIDTH = 9, 13


class HostFound(Value, kw_only=True):
    """What is known of a host that has answered.

    Args:
        ranks: how many it would get.
        ahead_s: its clock at least is of the launcher's; below 0 if it is behind.
        devices: that JAX has there.
        share: of its GPUs, that each rank would get.
        interface: that faces the other hosts, where these are other machines.

    """

    name: str
    ranks: int
    surveyed: Surveyed
    ahead_s: float
    devices: DevicesCounted = DevicesCounted((), "")
    share: GpuShares = GpuShares()
    interface: NetworkInterface | None = None

    @property
    def python(self) -> PythonFacts:
        """The Python of its ranks."""
        return self.surveyed.python

    @property
    def gpus(self) -> int:
        """How many GPUs a program there would see."""
        return sum(one.count for one in self.surveyed.gpus)

    @property
    def platforms(self) -> set[str]:
        """Of the devices that JAX has there."""
        return {one.platform for one in self.devices.devices}


class Found(Value, kw_only=True):
    """What the survey has found out.

    Args:
        hosts: that have answered.
        lost: why a host did not answer, or no longer does, by its name.
        seconds: until all hosts were reached.
        ways: so many were tried of those that collectives would take between two hosts.
        gaps: those that are closed.
        uses: whose collectives the ranks use; see `peers.collectives`.

    """

    hosts: tuple[HostFound, ...]
    lost: dict[str, str]
    seconds: float
    ways: int = 0
    gaps: tuple[Gap, ...] = ()
    uses: str = ""


class Finding(Value):
    """Something found out.

    Args:
        hosts: those of which it was found out, by name; empty for the job as a whole.
        cure: what to do about it; may be empty.

    """

    topic: str
    value: str
    hosts: tuple[str, ...] = ()
    verdict: Verdict = "ok"
    cure: str = ""


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The same of several hosts as one finding of all of these, where the first of them was."""
    same: dict[Finding, list[str]] = {}
    for one in findings:
        same.setdefault(one.replaced(hosts=()), []).extend(one.hosts)
    return [one.replaced(hosts=tuple(hosts)) for one, hosts in same.items()]


def topics(findings: Sequence[Finding], verdict: Verdict) -> list[str]:
    """The topics in which there is a finding with this verdict, each once."""
    return list(dict.fromkeys(one.topic for one in findings if one.verdict == verdict))


def lines(findings: Sequence[Finding], width: int) -> Iterator[str]:
    """The findings in lines of this width. A long path stays whole, so that it can be copied.

    A finding that is ok and the same on all hosts does not name them. A cure that several findings
    in a row share stands after the last.
    """
    of_topic = Counter(finding.topic for finding in findings)
    indent = " " * (_VERDICT_WIDTH + _TOPIC_WIDTH)
    for one, after in zip(findings, [*findings[1:], None], strict=True):
        begin = f"{one.verdict:<{_VERDICT_WIDTH}}{one.topic:<{_TOPIC_WIDTH}}"
        named = one.hosts and (one.verdict != "ok" or of_topic[one.topic] > 1)
        value = f"{some(one.hosts)}: {one.value}" if named else one.value
        cure = "" if after is not None and after.cure == one.cure else one.cure
        for text, head in (value, begin), (cure, f"{indent}- "):
            yield from textwrap.wrap(
                visible(text),
                width,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_on_hyphens=False,
                break_long_words=False,
            )


def last_line(findings: Sequence[Finding], of_what: str) -> str:
    """Whether a job would work, and in which topics there are errors and warnings."""
    wrong: dict[str, list[str]] = {
        "errors": topics(findings, "error"),
        "warnings": topics(findings, "warning"),
    }
    found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in wrong.items() if names)
    line = f"{'FAILED' if wrong['errors'] else 'passed'}: {of_what}"
    return f"{line} ({found})" if found else line

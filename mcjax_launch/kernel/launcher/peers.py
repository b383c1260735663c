"""Whether the hosts reach one another where JAX's collectives need that; pure.

With `--coordinator ssh` only ssh has to be open for a job to start. But Gloo (CPU) and NCCL (GPU)
connect the hosts at ports of their own choice: each agent listens at such a port, and others try.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.wire.messages import HostFacts, Peer, PeersTried
from mcjax_launch.kernel.wire.value import Value
from mcjax_launch.ranks import counted

# A host tries no more than so many others: it does that at once.
_MOST = 64


def collectives(job: Job) -> Literal["cpu", "gpu", "any", ""]:
    """Whose collectives the ranks use, as far as it is known; "" for none with ports to be checked.

    Those of TPUs have a network of their own.
    """
    platforms = dict(job.env).get("JAX_PLATFORMS", "").split(",")[0]
    if job.uses_cpu or platforms == "cpu":
        return "cpu"
    if job.gpus_per_process is not None or platforms in ("cuda", "gpu", "rocm"):
        return "gpu"
    return "" if platforms == "tpu" else "any"


class Gap(Value):
    """A host that does not reach another one, and where it has tried; "" for nowhere."""

    host: str
    peer: str
    why: str

    def __str__(self) -> str:
        return f"host {self.host} cannot reach host {self.peer}{self.where}"

    @property
    def where(self) -> str:
        """Where it has tried, and what went wrong, to follow the name of the other host."""
        if self.why:
            return f" at {self.why}"
        return ", whose own name leads to no address but loopback"


class Reach:
    """Which host reaches which.

    Args:
        hosts: of the job, in order.
        answers: of their agents.

    """

    def __init__(self, hosts: Sequence[Host], answers: Mapping[Host, HostFacts]) -> None:
        self._hosts = list(hosts)
        self._answers = answers
        self._tried: dict[Host, PeersTried] = {}

    def peers(self, host: Host) -> tuple[Peer, ...]:
        """Those that a host is to try: all the others, or of very many the next ones in order."""
        at = self._hosts.index(host)
        others = [*self._hosts[at + 1 :], *self._hosts[:at]][:_MOST]
        return tuple(
            Peer(other.name, self._answers[other].addresses, self._answers[other].port)
            for other in others
        )

    def answered(self, host: Host, tried: PeersTried) -> None:
        """A host has tried."""
        self._tried[host] = tried

    @property
    def complete(self) -> bool:
        """Whether all hosts have."""
        return len(self._tried) == len(self._hosts)

    def address(self, host: Host) -> str:
        """The address by which the others reach a host, or likely would; "" if it has none."""
        found = self._answers[host].addresses
        reached = [
            tried.reached[host.name] for tried in self._tried.values() if host.name in tried.reached
        ]
        return next(
            (address for address in found if all(address in one for one in reached)),
            found[0] if found else "",
        )

    def gaps(self) -> list[Gap]:
        """Which host does not reach which."""
        return [
            Gap(host.name, peer.name, self._tried[host].errors.get(peer.name, ""))
            for host in self._hosts
            if host in self._tried
            for peer in self.peers(host)
            if not self._tried[host].reached.get(peer.name)
        ]

    def gap(self) -> str:
        """The first gap, in words; "" if each host that has tried reaches all."""
        first, *others = [*self.gaps(), None]
        more = f", and {counted(len(others) - 1, 'more such pair')}" if len(others) > 1 else ""
        return f"{first}{more}" if first is not None else ""


def remedy(uses: str) -> str:
    """What that means for a job with these collectives, and what to do."""
    if uses == "cpu":
        return (
            "JAX's collectives on CPU (Gloo) connect the hosts at random ports, so they cannot "
            "work: let firewalls pass all ports between these hosts, or choose others"
        )
    whose = "on GPUs (NCCL)" if uses == "gpu" else "on CPU and GPUs (Gloo, NCCL; not those of TPUs)"
    return f"collectives {whose} need random ports open between the hosts"

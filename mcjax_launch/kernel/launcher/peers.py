"""Reachability: which hosts reach each other, and at which address they reach rank 0's host.

Gloo (CPU) and NCCL (GPU) connect the hosts at ports of their own choice. For `--check` each agent
listens at such a port, and the other agents try to connect. No function here has effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.kernel.wire.address import LOOPBACK, TPU_PORTS, is_loopback
from mcjax_launch.kernel.wire.exit_status import HOST_LOST
from mcjax_launch.kernel.wire.hook_messages import GPU_PLATFORMS
from mcjax_launch.kernel.wire.messages import CoordinatorTried, HostFacts, Peer, PeersTried
from mcjax_launch.kernel.wire.value import Value

# Most other hosts that a host tries, all at once.
_MOST = 64


def get_collectives_kind(job: Job) -> Literal["cpu", "gpu", "any", ""]:
    """Return the kind of collectives that ranks use; "any" if unknown, "" for TPUs.

    TPUs have their own network, whose ports are not checked.
    """
    platforms = dict(job.env).get("JAX_PLATFORMS", "").split(",")[0]
    if job.uses_cpu or platforms == "cpu":
        return "cpu"
    if job.gpus_per_process is not None or platforms in ("gpu", *GPU_PLATFORMS):
        return "gpu"
    return "" if platforms == "tpu" else "any"


class Gap(Value):
    """Failed connection from a host to a peer; `why`: tried address and error."""

    host: str
    peer: str
    why: str

    def __str__(self) -> str:
        return f"host {self.host} cannot reach host {self.peer}{self.where}"

    @property
    def where(self) -> str:
        """Tried address and the error, as words to put behind the peer's name."""
        if self.why:
            return f" at {self.why}"
        return ", whose own name leads to no address but loopback"


class Reach:
    """Record of which hosts reach which other hosts.

    Args:
        hosts: hosts of the job, in order.
        answers: facts that each host's agent has sent.

    """

    def __init__(self, hosts: Sequence[Host], answers: Mapping[Host, HostFacts]) -> None:
        self._hosts = list(hosts)
        self._answers = answers
        self._tried: dict[Host, PeersTried] = {}

    def select_peers(self, host: Host) -> tuple[Peer, ...]:
        """Return the hosts that a host must try to reach: the next 64 in order, or all if fewer."""
        at = self._hosts.index(host)
        others = [*self._hosts[at + 1 :], *self._hosts[:at]][:_MOST]
        return tuple(
            Peer(other.name, self._answers[other].addresses, self._answers[other].port)
            for other in others
        )

    def record_answer(self, host: Host, tried: PeersTried) -> None:
        """Record the results of a host's attempts to reach its peers."""
        self._tried[host] = tried

    def choose_address(self, host: Host) -> str:
        """Return the address at which other hosts probably reach a host; "" if it has none."""
        found = self._answers[host].addresses
        reached = [
            tried.reached[host.name] for tried in self._tried.values() if host.name in tried.reached
        ]
        return next(
            (address for address in found if all(address in tried for tried in reached)),
            found[0] if found else "",
        )

    def list_gaps(self) -> list[Gap]:
        """Return the failed connections."""
        return [
            Gap(host.name, peer.name, self._tried[host].errors.get(peer.name, ""))
            for host in self._hosts
            if host in self._tried
            for peer in self.select_peers(host)
            if not self._tried[host].reached.get(peer.name)
        ]


def format_remedy(uses: str) -> str:
    """Return lines for the user: the consequence of a failed connection, and a cure."""
    if uses == "cpu":
        return (
            "JAX's collectives on CPU (Gloo) connect the hosts at random ports, so they cannot "
            "work: let firewalls pass all ports between these hosts, or choose others"
        )
    whose = "on GPUs (NCCL)" if uses == "gpu" else "on CPU and GPUs (Gloo, NCCL; not those of TPUs)"
    return f"collectives {whose} need random ports open between the hosts"


# --- rank 0's host: an address that all can reach ---
# The agents try it (`TryCoordinator`) before ranks start, so that an unreachable coordinator is an
# error that names both ends, not a hang of five minutes.


def list_candidates(
    hosts: Sequence[Host], answers: Mapping[Host, HostFacts], given: str | None
) -> list[str]:
    """Return candidate addresses of rank 0's host, the most likely first.

    Args:
        hosts: hosts of the job, rank 0's first.
        answers: facts that each host's agent has sent.
        given: address that the user has chosen; None if none.

    Raises:
        LaunchError: rank 0's host has no address that other hosts can use.

    """
    if given is not None:
        return [given]
    first, *others = hosts
    if len({answers[host].machine for host in hosts}) == 1:
        return [LOOPBACK]
    found = list(answers[first].addresses)
    if first.is_local:  # other hosts know the address from which the launcher connected
        found = [answers[host].launcher for host in others] + found
    found = [address for address in dict.fromkeys(found) if address and not is_loopback(address)]
    if not found:
        raise LaunchError(
            f"host {first.name}: the other hosts need an address to reach it, and it has only "
            "loopback; set one with --coordinator",
            HOST_LOST,
        )
    return found


def list_taken_ports(facts: HostFacts) -> tuple[int, ...]:
    """Return the ports open in a TPU slice's network that are in use on rank 0's host."""
    if facts.tpu is None:
        return ()
    return TPU_PORTS[: TPU_PORTS.index(facts.port)] if facts.port in TPU_PORTS else TPU_PORTS


def choose_coordinator_address(
    first: Host,
    port: int,
    tried: Sequence[str],
    checked: Mapping[Host, CoordinatorTried],
    taken: Sequence[int] = (),
) -> str:
    """Return the first address that every other host has reached.

    Args:
        first: rank 0's host.
        port: port that was tried on that host.
        tried: addresses of that host, the best first.
        checked: results of the other hosts' attempts.
        taken: better ports that are in use on that host.

    Raises:
        LaunchError: no address was reached by all hosts.

    """
    for address in tried:
        if all(address in found.sources for found in checked.values()):
            return address
    host, found = next(
        (host, found) for host, found in checked.items() if tried[0] not in found.sources
    )
    reasons = ", ".join(f"{address}: {found.errors[address]}" for address in found.errors)
    which = f"port {port}"
    if taken:
        which += f" ({' and '.join(map(str, taken))}: in use there)"
    raise LaunchError(
        f"host {host.name} cannot reach the coordinator on host {first.name}, {which}, at "
        f"{reasons}; open the port (--coordinator HOST:PORT chooses it), or set another address",
        HOST_LOST,
    )


def get_own_address(
    host: Host, first: Host, coordinator: str, checked: Mapping[Host, CoordinatorTried]
) -> str:
    """Return the address by which a host takes part in the job; "" if loopback is enough."""
    if is_loopback(coordinator):
        return ""
    return coordinator if host is first else checked[host].sources[coordinator]

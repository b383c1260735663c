"""Reachability: which hosts reach each other, and at which address they reach rank 0's host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.wire.address import LOOPBACK, TPU_PORTS, is_loopback
from mcjax_launch.wire.exit_status import HOST_LOST
from mcjax_launch.wire.messages import CoordinatorTried, HostFacts

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

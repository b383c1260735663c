"""Choosing an address of rank 0's host that all hosts can reach; pure.

The agents try it (`TryCoordinator`) before anything is started, so that an unreachable
coordinator is an error that names both ends, not a hang of five minutes.
"""

from collections.abc import Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.kernel.wire.address import LOOPBACK, TPU_PORTS, is_loopback
from mcjax_launch.kernel.wire.exit_status import HOST_LOST
from mcjax_launch.kernel.wire.messages import CoordinatorTried, HostFacts


def candidates(
    hosts: Sequence[Host], answers: Mapping[Host, HostFacts], given: str | None
) -> list[str]:
    """Candidate addresses of rank 0's host, the most likely first.

    Args:
        hosts: all of the job, rank 0's first.
        answers: of their agents.
        given: the user's own choice.

    Raises:
        LaunchError: there are none.

    """
    if given is not None:
        return [given]
    first, *others = hosts
    if len({answers[host].machine for host in hosts}) == 1:
        return [LOOPBACK]
    found = list(answers[first].addresses)
    if first.is_local:  # the others know the address from which the launcher reached them
        found = [answers[host].launcher for host in others] + found
    found = [address for address in dict.fromkeys(found) if address and not is_loopback(address)]
    if not found:
        raise LaunchError(
            f"host {first.name}: the other hosts need an address to reach it, and it has only "
            "loopback; set one with --coordinator",
            HOST_LOST,
        )
    return found


def taken_ports(facts: HostFacts) -> tuple[int, ...]:
    """The ports that a TPU slice's network passes, and that rank 0's host has found taken."""
    if facts.tpu is None:
        return ()
    return TPU_PORTS[: TPU_PORTS.index(facts.port)] if facts.port in TPU_PORTS else TPU_PORTS


def choose(
    first: Host,
    port: int,
    tried: Sequence[str],
    checked: Mapping[Host, CoordinatorTried],
    taken: Sequence[int] = (),
) -> str:
    """The first address that every other host has reached.

    Args:
        first: rank 0's host.
        port: that was tried there.
        tried: its addresses.
        checked: what the other hosts say.
        taken: ports that would have been better.

    Raises:
        LaunchError: there is none.

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
        f"{reasons}; open the port (--coordinator HOST:PORT chooses it), set another address, or "
        "use --coordinator ssh, which needs no port",
        HOST_LOST,
    )


def own_address(
    host: Host, first: Host, coordinator: str, checked: Mapping[Host, CoordinatorTried]
) -> str:
    """The address by which a host takes part in the job; empty if loopback is enough."""
    if is_loopback(coordinator):
        return ""
    return coordinator if host is first else checked[host].sources[coordinator]

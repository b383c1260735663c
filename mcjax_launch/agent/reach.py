"""Whether hosts can reach one another, found out before anything is started."""

from __future__ import annotations

import errno
import os
import select
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_S = 3.0


def machine() -> str:
    """The same for two agents if and only if loopback is the same for both."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()


def ssh_addresses() -> tuple[str, str]:
    """By which address the launcher came, and to which: (its, ours); empty if not over ssh."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return (fields[0], fields[2]) if len(fields) == 4 else ("", "")


def own_addresses() -> list[str]:
    """Addresses by which other hosts may reach this one, the likeliest first."""
    found = [ssh_addresses()[1], _outgoing(socket.AF_INET, "192.0.2.1"), *_of_own_name()]
    found.append(_outgoing(socket.AF_INET6, "2001:db8::1"))
    return [address for address in dict.fromkeys(found) if address and not is_loopback(address)]


def source_towards(address: str) -> str:
    """The address of this host on the way to another; empty if that is loopback."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = _outgoing(family, address)
    return "" if is_loopback(found) else found


def _outgoing(family: int, target: str) -> str:
    """The address from which a packet to the world would come; none is sent."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _of_own_name() -> list[str]:
    try:
        entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in entries]


def is_loopback(address: str) -> bool:
    """Whether an address is good on its own host only."""
    return address.startswith("127.") or address in ("::1", "0.0.0.0", "::")


def own_name_is_good() -> bool:
    """Whether this host's own name leads to an address that others may use.

    Gloo, JAX's collectives on CPU, listens where the own name leads: Debian's 127.0.1.1 cannot be
    reached from elsewhere, and a name that leads nowhere is an error.
    """
    found = _of_own_name()
    return bool(found) and not is_loopback(found[0])


class Attempt:
    """A connection to one address, tried."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.source = ""
        self.error = "no answer (a firewall?)"
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.settle(self.socket.connect_ex((address, port)))

    @property
    def pending(self) -> bool:
        return self.socket.fileno() >= 0

    def settle(self, code: int) -> None:
        """Take note of how it went."""
        if code == errno.EINPROGRESS:
            return
        if code == 0:
            self.source = str(self.socket.getsockname()[0])
        else:
            self.error = os.strerror(code)
        self.socket.close()


def attempt(addresses: Sequence[str], port: int) -> list[Attempt]:
    """Connect to all of these addresses at the same time, for a few seconds at the most."""
    attempts = [Attempt(address, port) for address in addresses]
    deadline = time.monotonic() + _MOST_S
    while pending := {a.socket.fileno(): a for a in attempts if a.pending}:
        poll = select.poll()
        for fd in pending:
            poll.register(fd, select.POLLOUT)
        ready = poll.poll(max(0, int((deadline - time.monotonic()) * 1000)))
        for fd, _ in ready:
            connection = pending[fd].socket
            pending[fd].settle(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        if not ready:
            for late in pending.values():
                late.socket.close()
    return attempts

"""Whether hosts can reach one another, found out before anything is started."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time

from ..wire.address import is_loopback
from ..wire.messages import PeersTried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..wire.messages import Peer

_MOST_S = 3.0
_SIOCGIFADDR = 0x8915  # of Linux
_NO_ANSWER = "no answer (a firewall?)"


def ssh_addresses() -> tuple[str, str]:
    """The launcher's address and this host's, on the way it came; empty if not over ssh."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return (fields[0], fields[2]) if len(fields) == 4 else ("", "")


def own_addresses(named: Sequence[str]) -> list[str]:
    """Addresses by which other hosts may reach this one, the likeliest first.

    Args:
        named: those to which its own name leads.

    """
    found = [ssh_addresses()[1], _outgoing(socket.AF_INET, "192.0.2.1"), *named]
    found.append(_outgoing(socket.AF_INET6, "2001:db8::1"))
    # A node of a closed network has no route to the world, and by Debian's custom its own name
    # leads to 127.0.1.1. Interfaces come last: a bridge of containers has one address everywhere.
    return _usable(found) or _usable([address for _, address in addresses_of_interfaces()])


def _usable(addresses: Sequence[str]) -> list[str]:
    return [a for a in dict.fromkeys(addresses) if a and not is_loopback(a) and "%" not in a]


def addresses_of_interfaces() -> list[tuple[str, str]]:
    """Each interface that has an IPv4 address, on Linux, with that."""
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = name.encode()[:15].ljust(256, b"\0")
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:  # it has none, or this is not Linux
                continue
            found.append((name, socket.inet_ntoa(answer[20:24])))
    return found


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


def own_name() -> list[str]:
    """The addresses to which this host's own name leads; none if it leads nowhere, or nobody knows.

    A name server that does not answer can hold this up for longer than the launcher waits for a
    sign of life, so a child asks.
    """
    answer, answer_fd = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
            os.write(answer_fd, "\n".join(str(entry[4][0]) for entry in entries).encode())
        finally:
            os._exit(0)
    os.close(answer_fd)
    poll = select.poll()
    poll.register(answer, select.POLLIN)
    text = os.read(answer, 4096).decode() if poll.poll(int(_MOST_S * 1000)) else ""
    os.close(answer)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return text.split()


class Connecting:
    """A connection to one address, tried."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port
        self.source = ""
        self.error = _NO_ANSWER
        self.socket = socket.socket()
        try:
            if ":" in address:
                self.socket.close()
                self.socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            self.socket.setblocking(False)
            self.settle(self.socket.connect_ex((address, port)))
        except OSError as error:  # an address that this host cannot make sense of
            self.error = error.strerror or str(error)
            self.socket.close()

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


def attempt(addresses: Sequence[str], port: int) -> list[Connecting]:
    """Connect to all of these addresses at the same time, for a few seconds at the most.

    If none can be reached, those that have not answered are tried once more: where very many hosts
    come at once, or the coordinator's is busy, the first packets may have been dropped.
    """
    first = _try_all([(address, port) for address in addresses])
    silent = [a.address for a in first if a.error == _NO_ANSWER]
    if any(a.source for a in first) or not silent:
        return first
    again = _try_all([(address, port) for address in silent])
    reached = {a.address: a for a in again if a.source}
    return [reached.get(a.address, a) for a in first]


def try_peers(peers: Sequence[Peer]) -> PeersTried:
    """Connect to all addresses of these hosts at the same time, for a few seconds at the most."""
    places = [(address, peer.port) for peer in peers for address in peer.addresses]
    tried = {(a.address, a.port): a for a in _try_all(places)}
    reached, errors = {}, {}
    for peer in peers:
        attempts = [tried[address, peer.port] for address in peer.addresses]
        reached[peer.name] = tuple(a.address for a in attempts if a.source)
        if not reached[peer.name] and attempts:
            errors[peer.name] = f"{attempts[0].address}: {attempts[0].error}"
    return PeersTried(reached, errors)


def _try_all(places: Sequence[tuple[str, int]]) -> list[Connecting]:
    attempts = [Connecting(address, port) for address, port in places]
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

"""Tests whether hosts can reach each other, before ranks start, and reservation of ports."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time

from ..machine.loop import READ, Loop
from ..wire.address import is_loopback

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence


# Seconds; a busy host may drop the first packets of a connection, sent again after 1 and 3 s.
_MOST_S = 4.0
_SIOCGIFADDR = 0x8915  # on Linux
_NO_ANSWER = "no answer (a firewall?)"


def get_ssh_addresses() -> tuple[str, str]:
    """Return the addresses of both ends of the ssh connection, the launcher's first; "" if none."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return (fields[0], fields[2]) if len(fields) == 4 else ("", "")


def list_own_addresses(named: Sequence[str]) -> list[str]:
    """Return addresses by which other hosts may reach this host, the likeliest first.

    Args:
        named: addresses to which this host's own name resolves.

    """
    found = [get_ssh_addresses()[1], _find_outgoing_address(socket.AF_INET, "192.0.2.1"), *named]
    found.append(_find_outgoing_address(socket.AF_INET6, "2001:db8::1"))
    # A node of a closed network has no default route, and on Debian its own name leads to
    # 127.0.1.1. Interfaces come last: a containers' bridge has the same address on every host.
    return _select_usable(found) or _select_usable(
        [address for _, address in _list_interface_addresses()]
    )


def _select_usable(addresses: Sequence[str]) -> list[str]:
    return [a for a in dict.fromkeys(addresses) if a and not is_loopback(a) and "%" not in a]


def _list_interface_addresses() -> list[tuple[str, str]]:
    """Return name and IPv4 address of each interface that has an address; [] if not on Linux."""
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = name.encode()[:15].ljust(256, b"\0")
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:  # it has no address, or this is not Linux
                continue
            found.append((name, socket.inet_ntoa(answer[20:24])))
    return found


def find_source_address(address: str) -> str:
    """Return this host's source address for packets to `address`; "" if loopback or no route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = _find_outgoing_address(family, address)
    return "" if is_loopback(found) else found


def _find_outgoing_address(family: int, target: str) -> str:
    """Return the source address of packets to `target`; send none; "" without a route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def resolve_own_name() -> list[str]:
    """Return the addresses to which this host's name resolves; [] after a few seconds without any.

    A silent name server can block for longer than the launcher waits for a heartbeat, so a child
    process looks the name up.
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


class ConnectAttempt:
    """Attempt to connect: sets `source`, this host's address, on success, else `error`."""

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
        except OSError as error:  # an address of an unknown form
            self.error = error.strerror or str(error)
            self.socket.close()

    @property
    def pending(self) -> bool:
        """True until the attempt has succeeded or failed."""
        return self.socket.fileno() >= 0

    def settle(self, code: int) -> None:
        """Record the result of the attempt: `code` is an errno, 0 for success."""
        if code == errno.EINPROGRESS:
            return
        if code == 0:
            self.source = str(self.socket.getsockname()[0])
        else:
            self.error = os.strerror(code)
        self.socket.close()


def try_addresses(places: Sequence[tuple[str, int]]) -> list[ConnectAttempt]:
    """Try to connect to these addresses, all at once, for a few seconds; return the results."""
    attempts = [ConnectAttempt(address, port) for address, port in places]
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


# --- TCP ports, reserved from before the ranks start until the job ends ---
# A bound socket that never listens, with SO_REUSEPORT: strangers are refused (by connect and by
# bind), while a server of the same user that sets SO_REUSEPORT too, as gRPC does, can listen there.

# Connections to queue; the system limits them (net.core.somaxconn).
_BACKLOG = 65_535


class PortTaken(Exception):
    """Error for a port in use, or an address that is not this host's; its text says which."""


def reserve_port(host: str, port: int) -> socket.socket:
    """Reserve a port of `host` ("" for every address); a free port if `port` is 0.

    Raises:
        PortTaken: the port is in use, or the address is not this host's.

    """
    if not host:
        try:
            return _bind_socket(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise PortTaken(_format_error(host, port, error)) from None
            host = "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return _bind_socket(family, host, port)
    except OSError as error:
        raise PortTaken(_format_error(host, port, error)) from None


class PortProbe:
    """Listener on a reserved port, in place of the coordinator, for other hosts' test connections.

    Every connection is accepted and closed at once, because the kernel queues only a few.

    Args:
        held: socket bound to the reserved port.
        loop: event loop that reports connections.

    """

    def __init__(self, held: socket.socket, loop: Loop) -> None:
        self._loop = loop
        self._socket = _make_socket(held.family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # The kernel remembers closed connections for a minute, and they would block the port.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(held.getsockname()[:2])
        self._socket.listen(_BACKLOG)
        self._socket.setblocking(False)
        loop.watch(self._socket.fileno(), READ, lambda ready: self._dismiss_all())

    def _dismiss_all(self) -> None:
        try:
            while True:
                self._socket.accept()[0].close()
        except OSError:  # no connection is waiting
            pass

    def close(self) -> None:
        """Stop listening, so that the coordinator can listen on the port."""
        self._loop.forget(self._socket.fileno())
        self._socket.close()


def _bind_socket(family: int, host: str, port: int) -> socket.socket:
    if port:
        # SO_REUSEPORT alone would share the port with another job's coordinator of the same user.
        with _make_socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    held = _make_socket(family)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held


def _make_socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def _format_error(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this host"
    return f"{error.strerror}"

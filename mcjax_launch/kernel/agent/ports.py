"""TCP ports that stay reserved from before the ranks start until the job ends.

A bound socket that never listens, with SO_REUSEPORT: strangers are refused (by connect and by
bind), while a server of the same user that sets SO_REUSEPORT too, as gRPC does, can listen there.
"""

from __future__ import annotations

import errno
import socket

from ..wire.loop import READ, Loop

# As many as the system allows (net.core.somaxconn).
_BACKLOG = 65_535


class PortTaken(Exception):
    """Somebody else has the port, or the address is not this host's; the text says which."""


def reserve(host: str, port: int) -> socket.socket:
    """A reserved port of `host` ("" for every address); a free one if `port` is 0.

    Raises:
        PortTaken: the port is in use or the address is not one of this host's.

    """
    if not host:
        try:
            return _bound(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise PortTaken(_message(host, port, error)) from None
            host = "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return _bound(family, host, port)
    except OSError as error:
        raise PortTaken(_message(host, port, error)) from None


class PortProbe:
    """Listens on a reserved port, as the coordinator will, for those who try to connect.

    Every caller is accepted and dismissed at once: the kernel holds few who wait for that.

    Args:
        held: the reserved port.
        loop: calls when somebody connects.

    """

    def __init__(self, held: socket.socket, loop: Loop) -> None:
        self._loop = loop
        self._socket = _socket(held.family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Those that are dismissed stay known to the kernel for a minute, and would take the port.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(held.getsockname()[:2])
        self._socket.listen(_BACKLOG)
        self._socket.setblocking(False)
        loop.watch(self._socket.fileno(), READ, lambda ready: self._dismiss_all())

    def _dismiss_all(self) -> None:
        try:
            while True:
                self._socket.accept()[0].close()
        except OSError:  # nobody waits any more
            pass

    def close(self) -> None:
        """Leave the port to the coordinator."""
        self._loop.forget(self._socket.fileno())
        self._socket.close()


def _bound(family: int, host: str, port: int) -> socket.socket:
    if port:
        # SO_REUSEPORT alone would let us in beside another job's coordinator of the same user.
        with _socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    held = _socket(family)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def _message(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this host"
    return f"{error.strerror}"

"""Addresses as `host:port`, parsed and joined without any input or output."""

from __future__ import annotations

#: Ports that the networks of TPU slices usually let through: JAX's choices for its coordinator.
TPU_PORTS = (8476, 8482)
LOOPBACK = "127.0.0.1"
#: Addresses on which a server listens on all interfaces.
EVERYWHERE = ("0.0.0.0", "::")


def split_text(address: str) -> tuple[str, str]:
    """Split `host`, `host:port` or `[v6]:port` into host and port, as text; port "" if missing."""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, rest[1:]
    if address.count(":") > 1:
        return address, ""
    host, _, port = address.partition(":")
    return host, port


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port number; return port 0 if the address has none.

    Raises:
        ValueError: the port is not a number.

    """
    host, port = split_text(address)
    return host, int(port or 0)


def join_address(host: str, port: object) -> str:
    """Return `host:port`, with brackets around a host that contains colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Return whether an address works only on its own host."""
    return address.startswith("127.") or address in ("localhost", "::1", *EVERYWHERE)

"""Addresses as `host:port`, on both ends; pure."""

from __future__ import annotations

#: Those that the networks of TPU slices pass as a rule: JAX's own choices for its coordinator.
TPU_PORTS = (8476, 8482)
LOOPBACK = "127.0.0.1"
#: On which a server listens on all interfaces.
EVERYWHERE = ("0.0.0.0", "::")


def split_text(address: str) -> tuple[str, str]:
    """`host`, `host:port` or `[v6]:port` as host and port, as text; "" where there is no port."""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, rest[1:]
    if address.count(":") > 1:
        return address, ""
    host, _, port = address.partition(":")
    return host, port


def split_address(address: str) -> tuple[str, int]:
    """An address as host and port; 0 where there is no port.

    Raises:
        ValueError: the port is not a number.

    """
    host, port = split_text(address)
    return host, int(port or 0)


def join_address(host: str, port: object) -> str:
    """`host:port`, with brackets where the host has colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether an address works on its own host only."""
    return address.startswith("127.") or address in ("localhost", "::1", *EVERYWHERE)

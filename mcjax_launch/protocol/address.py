"""Addresses as `host:port`, on both ends; pure."""

from __future__ import annotations

LOOPBACK = "127.0.0.1"


def split_address(address: str) -> tuple[str, int]:
    """`host`, `host:port` or `[v6]:port` as host and port; 0 where there is no port.

    Raises:
        ValueError: the port is no number.

    """
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, int(rest[1:] or 0)
    if address.count(":") > 1:
        return address, 0
    host, _, port = address.partition(":")
    return host, int(port or 0)


def join_address(host: str, port: object) -> str:
    """`host:port`, with brackets where the host has colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether an address works on its own host only."""
    return address.startswith("127.") or address in ("::1", "0.0.0.0", "::")

"""The network interfaces that have this host's addresses, for --check."""

from __future__ import annotations

import os
import socket

from ....kernel.agent.network import addresses_of_interfaces
from ....kernel.wire.gpus import text_of
from ....kernel.wire.system import LINUX
from ..messages import NetworkInterface

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_DIGITS = 9


def of_addresses(addresses: Sequence[str], root: str = "/") -> tuple[NetworkInterface, ...]:
    """The interface of each of these addresses that is one of an interface's.

    Args:
        addresses: of this host; behind NAT they are none of its own.
        root: of the file system.

    """
    if not LINUX:
        return ()
    names = {**_of_ipv6(root), **{address: name for name, address in addresses_of_interfaces()}}
    return tuple(_interface(one, names[one], root) for one in addresses if one in names)


def _of_ipv6(root: str) -> dict[str, str]:
    """The interface of each IPv6 address, in lines such as `fe80000... 02 40 20 80 eth0`."""
    names = {}
    for line in text_of(os.path.join(root, "proc/net/if_inet6")).splitlines():
        fields = line.split()
        try:
            names[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))] = fields[-1]
        except (ValueError, IndexError, OSError):
            continue
    return names


def _interface(address: str, name: str, root: str) -> NetworkInterface:
    folder = os.path.join(root, "sys/class/net", name)
    mtu = _number(os.path.join(folder, "mtu"))
    speed = _number(os.path.join(folder, "speed")) if _is_real(folder) else 0
    return NetworkInterface(address, name, mtu, speed)


def _is_real(folder: str) -> bool:
    """Whether it is a card, or stands on one: a container's has a speed that means nothing."""
    try:
        return any(name == "device" or name.startswith("lower_") for name in os.listdir(folder))
    except OSError:
        return False


def _number(path: str) -> int:
    """What a file holds; 0 where that is nothing, or -1: not known."""
    text = text_of(path).strip()
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0

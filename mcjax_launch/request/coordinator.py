"""--coordinator as a numeric address, or as a name; waits for one that does not exist yet."""

import time
from collections.abc import Callable

from mcjax_launch.errors import LaunchError
from mcjax_launch.kernel.wire.address import is_loopback, join_address, split_address
from mcjax_launch.kernel.wire.exit_status import TIMED_OUT, USAGE

_PAUSE_S = 0.5


def resolve(text: str, wait_s: float, say: Callable[[str], object]) -> str:
    """The coordinator's `host:port` with a numeric host; port 0 where the user gives none.

    Args:
        text: as the user wrote it.
        wait_s: seconds that the name may take to appear: its pod may not have started yet.
        say: is called once if there is a wait.

    Raises:
        LaunchError: the address cannot be read, or its name does not resolve.

    """
    host, port = _split(text)
    import socket

    deadline, said = time.monotonic() + wait_s, False
    while True:
        try:
            entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            break
        except UnicodeError:  # a part between dots that is empty or too long
            raise LaunchError(f"--coordinator {text}: {host!r} is not a valid host name") from None
        except OSError as error:
            if time.monotonic() >= deadline:
                late = f"; waited for {wait_s:g} s (--start-timeout)" if wait_s else ""
                message = f"--coordinator {text}: {host}: {error.strerror}{late}"
                raise LaunchError(message, TIMED_OUT if wait_s else USAGE) from None
            if not said:
                say(f"waiting for the name {host}")
            said = True
            time.sleep(_PAUSE_S)
    entries.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return join_address(str(entries[0][4][0]), port)


def lasting_name(text: str, address: str) -> str:
    """The name of the coordinator's host, for JAX to resolve; "" where its address will do.

    A pod that is started again has another address, and its old one is answered for a while.

    Args:
        text: as the user wrote it.
        address: what it has been resolved to.

    """
    host, found = _split(text)[0], split_address(address)[0]
    return "" if host == found or is_loopback(host) or is_loopback(found) else host


def _split(text: str) -> tuple[str, int]:
    try:
        host, port = split_address(text)
        if not host or not 0 <= port < 65536:
            raise ValueError
    except ValueError:
        raise LaunchError(f"--coordinator {text}: write HOST or HOST:PORT") from None
    return host, port

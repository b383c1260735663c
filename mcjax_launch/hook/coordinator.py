"""Address of rank 0's coordination service, and the wait until the service listens.

In a job on one machine it is a unix socket in the job's private folder, so that no other user can
reach the service, which without TLS accepts everyone. Rank 0 decides: it uses the port instead if
its program, its jax or TLS needs that. The other ranks try both.
"""

from __future__ import annotations

import os
import sys

from ..wire.address import LOOPBACK, is_loopback, split_address
from ..wire.hook_environ import BIND, COORDINATOR
from . import jax_internals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_JAX_INIT_TIMEOUT_S = 300  # JAX's own default
# Seconds after which a rank prints that it waits for the coordinator.
_PATIENCE_S = 10
# Seconds that an attempt to connect may take (a firewall may drop packets), and for which a name's
# addresses are reused: a restarted pod has a new one.
_ATTEMPT_S = 1.0
# By all ranks together: a thousand ranks that try every 10 ms would keep rank 0's host busy.
_MOST_ATTEMPTS_PER_S = 2000


def get_own_address(environ: Mapping[str, str]) -> str:
    """Return the address of the job's own coordinator, also if a script has set another."""
    return environ.get(BIND) or environ.get("JAX_COORDINATOR_ADDRESS", "")


def is_placeholder(call: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether a call means this job, but names a loopback address, as JAX's guide does.

    Over hosts each rank would wait for itself; on one machine two jobs would meet there. If the
    user has set a loopback address for the job (--coordinator), the program's address holds.

    Args:
        call: arguments of initialize(), with those that the launcher fills in.
        environ: environment variables with which this process was started.

    """
    address, ours = str(call["coordinator_address"]), get_own_address(environ)
    host, port = split(address)
    if address == ours or not port or not is_loopback(host):
        return False
    if COORDINATOR not in environ and is_loopback(split(ours)[0]):
        return False
    names = {"num_processes": "JAX_NUM_PROCESSES", "process_id": "JAX_PROCESS_ID"}
    return all(call[name] == int(environ[variable]) for name, variable in names.items())


def find_replaced_address(given: Mapping[str, Any], filled: Mapping[str, Any]) -> str:
    """Return the address in a program's call in whose place `filled` has another; "" if none."""
    address = given.get("coordinator_address")
    return "" if address in (None, filled["coordinator_address"]) else str(address)


def split(address: str) -> tuple[str, int]:
    """Split a program's address into host and port; port 0 if it is missing or not a number."""
    try:
        return split_address(address)
    except ValueError:
        return address, 0


def is_left_open(
    real: Callable[..., Any], given: Mapping[str, Any], filled: Mapping[str, Any]
) -> bool:
    """Return whether the program and its jax let us choose the address on which rank 0 listens.

    Args:
        real: JAX's own function.
        given: arguments of the program's call, by name.
        filled: arguments for JAX.

    """
    import inspect

    names = ("coordinator_address", "coordinator_bind_address")
    if names[1] not in inspect.signature(real).parameters:
        return False
    is_ours = find_replaced_address(given, filled) != ""
    return is_ours or all(given.get(name) is None for name in names)


def is_private(environ: Mapping[str, str]) -> bool:
    """Return whether rank 0 of this machine's job listens at the job's private socket."""
    return os.path.exists(environ.get(COORDINATOR, ""))


def check_loopback(address: str, count: object) -> None:
    """Raise an error for a loopback address if that interface is down: gRPC would retry forever.

    Args:
        address: the coordinator's address.
        count: the number of processes; a single process needs no network.

    Raises:
        RuntimeError: the interface is down.

    """
    if count == 1 or not is_loopback(split(address)[0]):
        return
    import errno
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        code = probe.connect_ex((LOOPBACK, 9))  # sends nothing
    if code == errno.ENETUNREACH:
        raise RuntimeError(
            "mcjax-launch: the loopback interface of this machine is down, so the ranks cannot "
            f"reach {address}; bring it up: ip link set lo up"
        )


def join(
    real: Callable[..., Any],
    filled: Mapping[str, Any],
    environ: Mapping[str, str],
    left_open: bool,
) -> Any:
    """Call JAX's initialize() as soon as rank 0 listens, with the address at which it does.

    Args:
        real: JAX's initialize().
        filled: arguments for it; the coordinator's address is HOST:PORT, not the unix socket.
        environ: environment variables with which this process was started.
        left_open: True if the program lets us choose where rank 0 listens.

    Raises:
        Exception: any exception that `real` raises.

    """
    path, ours = environ.get(COORDINATOR, ""), environ.get(BIND, "")
    address = filled["coordinator_address"]
    if filled["process_id"] != 0:  # compare ports only: the host may have other names
        path = path if split(address)[1] == split(ours)[1] else ""
        return _join_service(real, filled, path)
    if address != ours:  # the program's own
        path = ""
    if path and left_open and "JAX_COORDINATOR_BIND_ADDRESS" not in environ and _can_bind(path):
        try:
            return _join_at_socket(real, filled, path)
        except Exception:
            if os.path.exists(path):
                raise
        # This jax does not accept a unix socket's address.
    return real(**filled)


def _join_service(real: Callable[..., Any], filled: Mapping[str, Any], path: str) -> Any:
    """Call JAX's initialize() in a rank other than 0; wait for rank 0 after JAX's own checks.

    JAX makes its client last, so a call that JAX rejects earlier does not wait.
    """
    library = jax_internals.get_extension()
    make = getattr(library, "get_distributed_runtime_client", None)
    if make is None:  # an unknown version of jax
        listens = _await_coordinator(filled, path)
        return _join_at_socket(real, filled, path) if listens else real(**filled)

    def make_client(address: str, *args: Any, **kwargs: Any) -> Any:
        listens = _await_coordinator(filled, path)
        return make(f"unix:{path}" if listens else address, *args, **kwargs)

    library.get_distributed_runtime_client = make_client
    try:
        return real(**filled)
    finally:
        library.get_distributed_runtime_client = make


def _join_at_socket(real: Callable[..., Any], filled: Mapping[str, Any], path: str) -> Any:
    address = f"unix:{path}"
    place = {"coordinator_address": address}
    if filled["process_id"] == 0:
        place["coordinator_bind_address"] = address
    result = real(**{**filled, **place})
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "coordinator_address", None) == address:
        # Programs may read the coordinator's host from it.
        state.coordinator_address = filled["coordinator_address"]  # type: ignore[union-attr]
    return result


def _can_bind(path: str) -> bool:
    """Return whether rank 0 can bind a unix socket to `path`; JAX crashes if binding fails."""
    import socket

    try:
        if _listens(socket.AF_UNIX, path):  # initialize() is called twice, which JAX reports
            return False
        if os.path.exists(path):  # left by an earlier service
            os.unlink(path)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(path)
        os.unlink(path)
    except OSError:
        return False
    return True


def _await_coordinator(filled: Mapping[str, Any], path: str) -> bool:
    """Wait until rank 0 listens or the time is up; return whether it listens on unix socket `path`.

    Plain connections are tried first: gRPC's first failed connection costs about a second of
    back-off, a plain connection that fails costs microseconds.
    """
    rank, count = filled["process_id"], filled["num_processes"]
    if not (isinstance(rank, int) and isinstance(count, int) and 0 < rank < count):
        return False  # a mistake that JAX reports
    import socket
    import time

    address = filled["coordinator_address"]
    host, port = split(address)
    if not 0 < port < 65536:
        return False
    limit = filled.get("initialization_timeout") or _JAX_INIT_TIMEOUT_S
    began = time.monotonic()
    pause, said = 0.002, False
    found, looked_up = [], began - _ATTEMPT_S
    while (now := time.monotonic()) < began + limit:
        if not said and now > began + _PATIENCE_S:
            said = True
            at = "" if path else f" at {address}"
            print(f"mcjax-launch: waiting for process 0{at}", file=sys.stderr, flush=True)
        if path and _listens(socket.AF_UNIX, path):
            return True
        if now >= looked_up + _ATTEMPT_S:
            found, looked_up = _find_addresses(host, port), now
        if any(_listens(family, place) for family, _, _, _, place in found):
            return False
        time.sleep(pause)
        pause = min(pause * 1.2, max(0.01, count / _MOST_ATTEMPTS_PER_S))
    return False


def _find_addresses(host: str, port: int) -> list[Any]:
    """Return the addresses of a host, as `socket.getaddrinfo` does; [] if it has none."""
    import socket

    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []


def _listens(family: int, place: Any) -> bool:
    """Return whether a process accepts connections at an address within a second."""
    import socket

    try:
        with socket.socket(family, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(_ATTEMPT_S)
            attempt.connect(place)
    except OSError:
        return False
    return True


# --- mutual TLS, with this job's or the program's certificate ---

#: The arguments of initialize() for mutual TLS.
TLS_ARGUMENTS = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix")


def uses_tls(filled: Mapping[str, Any]) -> bool:
    """Return whether a call of initialize(), or JAX's configuration, sets TLS arguments."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return any(filled.get(name) or getattr(config, f"jax_{name}", None) for name in TLS_ARGUMENTS)

"""Patches of `jax.distributed`, which fill in arguments of initialize() and report joins."""

from __future__ import annotations

import os
import sys

from ..machine import rank_environ
from ..machine.interpreter import explain_old_jax
from ..wire.address import EVERYWHERE, is_loopback, join_address
from ..wire.hook_environ import ADDRESS, BIND, JOIN_TIMEOUT, SOCKET, SURVIVES, TRANSFER
from ..wire.hook_messages import (
    CalledBelow,
    ImportedJax,
    Joined,
    Joining,
    Leaving,
    Left,
    NotJoined,
)
from . import (
    barriers,
    below,
    coordinator,
    devices,
    first_backend,
    handled,
    jax_internals,
    user_lines,
)
from .wrapping import wrap_like

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .agent_link import AgentLink
    from .exits import Exits
    from .part import Parts

# --- settings that must be equal in all processes ---

# Options of JAX's configuration, which a variable or the program sets.
_OPTIONS = {"JAX_PLATFORMS": "jax_platforms", "JAX_ENABLE_X64": "jax_enable_x64"}
_TLS = "mutual TLS"
# Parts of the names of flags that may differ between processes: where to write what.
_OWN_FLAGS = ("dump", "dir", "path", "file", "log", "cache")
_MOST = 2_000


def read_settings() -> dict[str, str]:
    """Return the set options of this process that all ranks should share."""
    config = getattr(sys.modules.get("jax"), "config", None)
    found = {name: _read_option(config, option) for name, option in _OPTIONS.items()}
    flags = sorted(os.environ.get("XLA_FLAGS", "").split())
    shared = [f for f in flags if not any(word in f.partition("=")[0] for word in _OWN_FLAGS)]
    found["XLA_FLAGS"] = " ".join(shared)
    return {name: value[:_MOST] for name, value in found.items() if value}


def _read_option(config: Any, option: str) -> str:
    value = getattr(config, option, None)
    return str(int(value)) if value is True else str(value or "")


# --- initialize() ---

# A rank that is done waits in JAX's shutdown barrier for its peers; after this time JAX aborts them
# all. With a launcher watching there is no reason to, so it is a week.
_SHUTDOWN_TIMEOUT_S = 7 * 24 * 3600
# If ranks go on without a failed rank: time until they notice a failure. JAX's default is 100 s.
_HEARTBEAT_TIMEOUT_S = 10
# Characters of an exception's text.
_MOST_SUMMARY = 300


class Initialization:
    """Patches of JAX's initialize() and shutdown()."""

    def __init__(
        self,
        link: AgentLink,
        environ: Mapping[str, str],
        exits: Exits,
        parts: Parts,
    ) -> None:
        self._link = link
        self._environ = environ
        self._exits = exits
        self._parts = parts

    def patch(self, distributed: Any) -> None:
        """Replace JAX's initialize() and shutdown() by wrappers."""
        self._replace(distributed, "initialize", self._wrap_initialize)
        python = ".".join(map(str, sys.version_info[:3]))
        self._link.send(ImportedJax(_get_version("jax"), _get_version("jaxlib"), python))
        self._replace(distributed, "shutdown", self._wrap_shutdown)

    def _replace(
        self,
        distributed: Any,
        name: str,
        make: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        """Replace a function of JAX in `distributed` and in the module that defines it."""
        real = getattr(distributed, name)
        replacement = wrap_like(real, make(real))
        for module in (distributed, sys.modules.get(real.__module__)):
            if getattr(module, name, None) is real:
                setattr(module, name, replacement)

    def _wrap_initialize(self, real: Callable[..., Any]) -> Callable[..., Any]:
        import inspect

        def initialize(*args: Any, **kwargs: Any) -> Any:
            try:
                given = inspect.signature(real).bind(*args, **kwargs).arguments
                filled = fill_in(real, given, self._environ, self._parts)
            except TypeError:
                filled = None
            if filled is None:  # a wrong call, which JAX reports
                return real(*args, **kwargs)
            if below.repeats(self._environ, filled):
                return self._report_call_below()
            try:
                self._prepare_join(filled, coordinator.find_replaced_address(given, filled))
                result = self._join(real, given, filled)
            except Exception as error:
                if not self._exits.joined:
                    below.forget_call()
                    self._link.send(_make_refusal(error))
                raise
            self._report_join(filled)
            return result

        return initialize

    def _join(
        self, real: Callable[..., Any], given: Mapping[str, Any], filled: dict[str, Any]
    ) -> Any:
        """Check for mistakes that would make JAX's initialize() hang, then call it."""
        instead = self._parts.find("join")
        if instead is not None:
            return instead.join(real, filled)
        coordinator.check_loopback(str(filled["coordinator_address"]), filled["num_processes"])
        # With TLS, no socket: a certificate cannot name it.
        left_open = not coordinator.uses_tls(filled) and coordinator.is_left_open(
            real, given, filled
        )
        return coordinator.join(real, filled, self._environ, left_open)

    def _report_call_below(self) -> None:
        """Report a call of initialize() in a rank's child process, which JAX never gets."""
        call = CalledBelow(user_lines.find_current_line(), below.imports_main_again())
        self._link.is_below = True
        try:
            if not self._link.is_of_this_process:  # a fork
                process_id = self._environ.get("JAX_PROCESS_ID", "")
                self._link.connect(self._environ[SOCKET], process_id)
            self._link.send(call, below=True)
        except OSError:  # the job has ended
            pass

    def _prepare_join(self, filled: Mapping[str, Any], replaced: str) -> None:
        """Report the call of initialize(), and prepare this process for it."""
        count = _convert_to_int(filled["num_processes"])
        process_id = _convert_to_int(filled["process_id"])
        address = str(filled["coordinator_address"])
        elsewhere = process_id == 0 and _is_elsewhere(filled, self._environ)
        place = user_lines.find_current_line()
        config = getattr(sys.modules.get("jax"), "config", None)
        recoverable = bool(getattr(config, "jax_enable_recoverability", False))
        self._link.send(
            Joining(
                address,
                count,
                process_id,
                place,
                _get_version("jax"),
                _get_version("jaxlib"),
                elsewhere,
                recoverable,
                read_settings() | ({_TLS: "on"} if coordinator.uses_tls(filled) else {}),
                replaced,
                user_lines.find_handler("SIGTERM") if _catches_sigterm(config) else "",
                bool(getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)),
            )
        )
        _set_transfer_address(self._environ)
        # The program, or a script around it, may have set a proxy.
        os.environ.update(
            rank_environ.make_no_proxy_settings(os.environ, coordinator.split(address)[0])
        )
        devices.leave_gpus_to_program(self._environ)
        _adjust_jaxlib(address, self._environ)
        barriers.watch(self._link)
        below.record_call(filled)
        self._exits.watch()
        self._link.answer_by_thread()

    def _report_join(self, filled: Mapping[str, Any]) -> None:
        """Record and report that initialize() has returned: this process is in the job."""
        self._exits.joined = True
        devices.replace_slice_index(filled)
        for part in self._parts.list_enabled():
            part.on_join(is_alone=filled["num_processes"] == 1)
        if filled["num_processes"] != 1:
            handled.HandledErrors(self._link).watch()
        process_id = _convert_to_int(filled["process_id"])
        if process_id is not None:
            self._link.send(Joined(process_id, coordinator.is_private(self._environ)))

    def _wrap_shutdown(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of shutdown() that reports the call and its return.

        At the exit of a failed program (`atexit.register(jax.distributed.shutdown)`) it does
        nothing, because JAX would wait for the other ranks.
        """

        def shutdown(*args: Any, **kwargs: Any) -> Any:
            if self._exits.has_failed:
                return None
            joined = self._exits.joined
            if joined:
                self._link.send(Leaving())
            result = real(*args, **kwargs)
            if joined:
                self._exits.joined = False
                below.forget_call()
                self._link.send(Left())
            return result

        return shutdown


def _catches_sigterm(config: Any) -> bool:
    """Return whether initialize() installs JAX's handler of SIGTERM, for preemptions."""
    return bool(getattr(config, "jax_enable_preemption_service", True))


def _make_refusal(error: Exception) -> NotJoined:
    """Return the message for the agent about an exception that initialize() has raised."""
    summary = str(error).partition("\n")[0][:_MOST_SUMMARY]
    started = first_backend.find_start()
    backend_at = (started.imported_at or started.where) if started is not None else ""
    return NotJoined(type(error).__name__, summary, backend_at)


def _get_version(package: str) -> str:
    """Return the version of jax or jaxlib; "" if unknown, as when jax is half imported."""
    return str(getattr(sys.modules.get(f"{package}.version"), "__version__", ""))


def _convert_to_int(value: Any) -> int | None:
    """Return a program's value as an int (also NumPy's integers); None if it is no integer."""
    import operator

    try:
        return operator.index(value)
    except TypeError:
        return None


def fill_in(
    real: Callable[..., Any],
    called: Mapping[str, Any],
    environ: Mapping[str, str],
    parts: Parts | None = None,
) -> dict[str, Any]:
    """Return keyword arguments for `real`: the caller's, completed with the launcher's.

    Raises:
        RuntimeError: see `RankPart.make_arguments`.

    """
    import inspect

    given, known = dict(called), inspect.signature(real).parameters

    def fill(name: str, value: object) -> None:
        if name in known and given.get(name) is None and value is not None:
            given[name] = value

    fill("coordinator_address", environ.get("JAX_COORDINATOR_ADDRESS"))
    fill("num_processes", int(environ["JAX_NUM_PROCESSES"]))
    fill("process_id", int(environ["JAX_PROCESS_ID"]))
    if not explain_old_jax(_get_version("jax")):  # an older jax rejects an unknown method
        fill("cluster_detection_method", "deactivate")
    replaced = coordinator.is_placeholder(given, environ)
    if replaced:
        given["coordinator_address"] = coordinator.get_own_address(environ)
        given.pop("coordinator_bind_address", None)  # has the placeholder's port
    address = given["coordinator_address"]
    # A loopback address chosen by the program needs no other interface either.
    is_bound = address == environ.get(BIND) or is_loopback(coordinator.split(address)[0])
    if is_bound and (replaced or "JAX_COORDINATOR_BIND_ADDRESS" not in environ):
        fill("coordinator_bind_address", address)
    if environ.get(JOIN_TIMEOUT):
        fill("initialization_timeout", max(1, int(float(environ[JOIN_TIMEOUT]))))
    fill("shutdown_timeout_seconds", _SHUTDOWN_TIMEOUT_S)
    for part in parts.list_enabled() if parts is not None else ():
        given.update(part.make_arguments(given, known))
    if environ.get(SURVIVES):
        fill("heartbeat_timeout_seconds", _HEARTBEAT_TIMEOUT_S)
    return {**given, **devices.make_partition_argument(given, known, environ)}


def _is_elsewhere(filled: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether the program's coordinator address certainly belongs to another machine."""
    address = filled["coordinator_address"]
    binds = filled.get("coordinator_bind_address") or environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    if binds or address == environ.get("JAX_COORDINATOR_ADDRESS"):
        return False
    import socket

    try:
        found = socket.getaddrinfo(coordinator.split(address)[0], None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # JAX reports that
        return False
    places = [(family, kind, place) for family, kind, _, _, place in found]
    return bool(places) and not any(_may_be_ours(*place) for place in places)


def _may_be_ours(family: int, kind: int, address: Any) -> bool:
    """Return whether an address may belong to this machine."""
    import errno
    import socket

    try:
        with socket.socket(family, kind) as attempt:
            attempt.bind(address)
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def _set_transfer_address(environ: Mapping[str, str]) -> None:
    address = environ.get(TRANSFER)
    if not address:
        return
    import jax

    anywhere = join_address(coordinator.split(address)[0], 0)
    try:
        jax.config.update("jax_cross_host_transfer_socket_address", address)
        # Addresses for the data itself; JAX's default is one that only its own machine can reach.
        jax.config.update("jax_cross_host_transport_addresses", ",".join([anywhere] * 4))
    except AttributeError:
        raise RuntimeError(
            f"--cpu-transfers: not supported by jax {jax.__version__}; upgrade jax"
        ) from None
    devices.when_backend_starts["transfers"] = _keep_cpu_backend


def _keep_cpu_backend(backend: Any) -> None:
    """Keep Python from destroying a CPU backend when the process ends.

    Otherwise the transfer server of a CPU backend would wait for its peers to close connections,
    which they never do if they ended earlier. The end of the process closes them.
    """
    if backend.platform == "cpu":
        barriers.prevent_destruction(backend)


def _adjust_jaxlib(address: str, environ: Mapping[str, str]) -> None:
    """Set defaults for two arguments of jaxlib that jax does not pass and has no settings for.

    The shutdown barrier's timeout: the argument of initialize() reaches only the service in rank 0.
    A client that arrives at the barrier would give up after 300 s and abort.

    The address on which Gloo, the collectives on CPU, listens: by default that of the host's own
    name. On Debian that is 127.0.1.1, which no other host can reach. If the coordinator's address
    is a loopback address, all processes are on one machine, and Gloo listens there.
    """
    library = jax_internals.get_extension()
    for name in ("get_distributed_runtime_client", "get_distributed_runtime_service"):
        _set_default_argument(library, name, "shutdown_timeout", _SHUTDOWN_TIMEOUT_S)
    host = coordinator.split(address)[0]
    listen = host if is_loopback(host) and host not in EVERYWHERE else environ.get(ADDRESS)
    if listen:
        _set_default_argument(library, "make_gloo_tcp_collectives", "hostname", listen)


def _set_default_argument(module: Any, name: str, argument: str, value: object) -> None:
    """Wrap `module.name` so that `argument` defaults to `value`; do nothing if it has none."""
    import functools

    real = getattr(module, name, None)
    is_done = hasattr(real, "__wrapped__")  # by an earlier initialize()
    if real is None or is_done or argument not in (real.__doc__ or ""):
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **{argument: value, **kwargs})

    setattr(module, name, functools.wraps(real)(call))

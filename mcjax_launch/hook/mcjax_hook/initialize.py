"""The hook inside every Python process of a rank.

It fills in what the caller of `jax.distributed.initialize()` left out, and tells the agent, over
a unix socket, what it cannot see from outside: that this process has joined, and that it has
failed although JAX's shutdown barrier holds up its exit. It never imports jax itself, and imports
nothing at start that costs time: `site` runs it before every program.
"""

import os
import sys

from ...protocol.hook_messages import (
    ADDRESS,
    BIND,
    JOIN_TIMEOUT,
    SOCKET,
    TRANSFER,
    Failed,
    Hello,
    ImportedJax,
    Joined,
    Joining,
    Leaving,
    Left,
)
from ...protocol.message import to_json
from . import compilation as programs
from . import exits, frames

# A rank that is done waits in JAX's shutdown barrier for its peers, and JAX aborts all of them
# when that takes longer than this. With a launcher watching there is no reason to: a week.
_SHUTDOWN_TIMEOUT_S = 7 * 24 * 3600
_JAX_INIT_TIMEOUT_S = 300  # JAX's own default
# After so long a rank says that it waits for the coordinator.
_PATIENCE_S = 10

_agent = None


def install():
    """Connect to the agent and put the hook in place; without an agent do nothing."""
    path = os.environ.get(SOCKET)
    if not path:
        return
    global _agent
    try:
        _agent = _Agent(path, dict(os.environ))
    except OSError:  # the agent is gone, or has more to do than it can
        return
    exits.install(_agent)
    patches = {"jax.distributed": _patch, "threading": exits.patch_threading}
    patches.update(programs.install(_agent))
    sys.meta_path.insert(0, _Finder(patches))


class _Agent:
    """The connection to the agent; usable from the process that made it alone."""

    def __init__(self, path, environ):
        import _socket  # without socket's own imports

        self.pid = os.getpid()
        self.environ = environ  # as it was: the program may change or clear its own
        self.joined = False
        self._told = False
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(1)
        self._socket.connect(path)
        self._socket.settimeout(None)
        signum = self._dump_on_signal()
        rank = environ.get("JAX_PROCESS_ID", "")
        self._send(to_json(Hello(self.pid, rank, signum)))

    def _dump_on_signal(self):
        """Have stacks written to the agent on a real-time signal; the next one for all threads.

        faulthandler looks at the frames of threads that run meanwhile: that may crash.
        """
        try:
            import _signal
            import faulthandler

            signum = _signal.SIGRTMIN + 11
            for all_threads in (False, True):
                fd = self._socket.fileno()
                faulthandler.register(signum + all_threads, fd, all_threads=all_threads)
            return signum
        except (ImportError, AttributeError):
            return 0

    def _send(self, line):
        try:
            # A line of its own also in the middle of a stack that is being written.
            self._socket.sendall(b"\n" + line.encode("utf-8", "replace") + b"\n")
        except OSError:
            pass

    def tell(self, message):
        if os.getpid() == self.pid:  # a forked child is not this rank
            self._send(to_json(message))

    def tell_failed(self, status, **details):
        """Say once that this process will end with `status`."""
        if not self._told and status & 0xFF:
            self._told = True
            joined = self.joined or _jax_is_initialized()
            self.tell(Failed(status & 0xFF, joined, **details))


def _jax_is_initialized():
    try:
        return bool(sys.modules["jax"].distributed.is_initialized())
    except Exception:
        return False


# --- jax.distributed.initialize ---


class _Finder:
    """Sees modules being imported that are to be patched, and patches them."""

    def __init__(self, patches):
        self._patches = patches

    def find_spec(self, name, path=None, target=None):
        if name not in self._patches:
            return None
        patch = self._patches.pop(name)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                _patch_when_loaded(spec.loader, patch)
                return spec
        return None


def _patch_when_loaded(loader, patch):
    load = loader.exec_module

    def exec_module(module):
        load(module)
        patch(module)

    loader.exec_module = exec_module


def _patch(distributed):
    import functools

    real = distributed.initialize

    @functools.wraps(real)
    def initialize(*args, **kwargs):
        environ = _agent.environ
        try:
            filled = fill_in(real, args, kwargs, environ)
        except TypeError:
            filled = None
        if filled is None:  # a wrong call, for which JAX has the words
            return real(*args, **kwargs)
        _agent.tell(Joining(**_coordinates(filled), where=frames.place()))
        _set_transfer_address(environ)
        _quieten(environ)
        _adjust_library(environ)
        exits.watch()
        _await_coordinator(filled)
        result = real(**filled)
        _agent.joined = True
        programs.joined(filled["num_processes"])
        _agent.tell(Joined(_number(filled["process_id"]), programs.watch()))
        return result

    distributed.initialize = initialize
    _agent.tell(ImportedJax())
    _patch_shutdown(distributed)


def _patch_shutdown(distributed):
    """A program may leave the job itself, and then end in any way."""
    import functools

    real = distributed.shutdown

    @functools.wraps(real)
    def shutdown(*args, **kwargs):
        joined = _agent.joined
        if joined:
            _agent.tell(Leaving())
        result = real(*args, **kwargs)
        if joined:
            _agent.tell(Left())
        return result

    distributed.shutdown = shutdown


def _coordinates(filled):
    numbers = {key: _number(filled[key]) for key in ("num_processes", "process_id")}
    return {"coordinator_address": str(filled["coordinator_address"]), **numbers}


def _number(value):
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def fill_in(real, args, kwargs, environ):
    """The keyword arguments for `real`: the caller's own, and ours for what was left out."""
    import inspect

    signature = inspect.signature(real)
    given = dict(signature.bind(*args, **kwargs).arguments)
    known = signature.parameters

    def fill(name, value):
        if name in known and given.get(name) is None and value is not None:
            given[name] = value

    fill("coordinator_address", environ.get("JAX_COORDINATOR_ADDRESS"))
    fill("num_processes", int(environ["JAX_NUM_PROCESSES"]))
    fill("process_id", int(environ["JAX_PROCESS_ID"]))
    fill("cluster_detection_method", "deactivate")
    bind = _bind_address(given["coordinator_address"], environ)
    if bind and "JAX_COORDINATOR_BIND_ADDRESS" not in environ:
        fill("coordinator_bind_address", bind)
    if environ.get(JOIN_TIMEOUT):
        fill("initialization_timeout", max(1, int(float(environ[JOIN_TIMEOUT]))))
    fill("shutdown_timeout_seconds", _SHUTDOWN_TIMEOUT_S)
    return given


def _bind_address(address, environ):
    if address == environ.get(BIND):
        return address
    host = address.rpartition(":")[0]
    if host == "localhost" or host.startswith("127.") or host == "[::1]":
        return address  # a program's own local address needs no other interface either
    return None


def _set_transfer_address(environ):
    address = environ.get(TRANSFER)
    if not address:
        return
    import jax

    host = address.rpartition(":")[0]
    try:
        jax.config.update("jax_cross_host_transfer_socket_address", address)
        # Where the data itself goes: by default to an address of the receiver's own machine.
        jax.config.update("jax_cross_host_transport_addresses", ",".join([f"{host}:0"] * 4))
    except AttributeError:
        raise RuntimeError(
            f"--cpu-transfers: this jax ({jax.__version__}) cannot do it; a newer one can"
        ) from None


def _quieten(environ):
    """Keep JAX, which warns of all variables of proxies, from warning of a `no_proxy` of ours."""
    proxies = {name.lower() for name in environ if "_proxy" in name.lower()}
    if proxies == {"no_proxy"}:
        import jax

        try:
            jax.config.update("jax_check_proxy_envs", False)
        except AttributeError:  # a jax that does not look
            pass


def _adjust_library(environ):
    """Two arguments of jaxlib that jax does not pass on; there is no public way to say them.

    The shutdown barrier's timeout: the argument of initialize() reaches the service in rank 0
    alone, and a client that arrives at the barrier gives up after 300 s of its own and aborts.

    The address on which Gloo, the collectives on CPU, listens: where this host's own name leads.
    On Debian that is 127.0.1.1, which no other host can reach.
    """
    distributed = sys.modules.get("jax._src.distributed")
    library = getattr(distributed, "_jax", None) or getattr(distributed, "xla_extension", None)
    for name in ("get_distributed_runtime_client", "get_distributed_runtime_service"):
        _default_argument(library, name, "shutdown_timeout", _SHUTDOWN_TIMEOUT_S)
    if environ.get(ADDRESS):
        _default_argument(library, "make_gloo_tcp_collectives", "hostname", environ[ADDRESS])


def _default_argument(module, name, argument, value):
    """Have `module.name` called with `argument=value` where its caller leaves that out."""
    import functools

    real = getattr(module, name, None)
    if real is None or argument not in (real.__doc__ or ""):
        return

    def call(*args, **kwargs):
        return real(*args, **{argument: value, **kwargs})

    setattr(module, name, functools.wraps(real)(call))


def _await_coordinator(filled):
    """Wait until rank 0 listens.

    gRPC's first failed connection costs about a second of back-off; a plain connect that fails
    costs microseconds.
    """
    rank, count = filled["process_id"], filled["num_processes"]
    if not (isinstance(rank, int) and isinstance(count, int) and 0 < rank < count):
        return  # rank 0, or a mistake for which JAX has words
    import socket
    import time

    host, _, port = filled["coordinator_address"].rpartition(":")
    if not port.isdigit():
        return
    limit = filled.get("initialization_timeout") or _JAX_INIT_TIMEOUT_S
    began = time.monotonic()
    pause, said = 0.002, False
    while time.monotonic() < began + limit:
        if not said and time.monotonic() > began + _PATIENCE_S:
            said = True
            where = filled["coordinator_address"]
            print(f"mcjax-launch: waiting for process 0 at {where}", file=sys.stderr, flush=True)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(pause)
            pause = min(pause * 1.2, 0.01)

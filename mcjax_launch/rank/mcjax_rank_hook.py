"""The hook inside every Python process of a rank.

It fills in what the caller of `jax.distributed.initialize()` left out, and tells the agent, over
a unix socket, what it cannot see from outside: that this process has joined, and that it has
failed although JAX's shutdown barrier holds up its exit. It never imports jax itself, and imports
nothing at start that costs time: `site` runs it before every program.
"""

import os
import sys

SOCKET = "MCJAX_HOOK_SOCKET"
#: Where rank 0's coordination service listens, for the coordinator that we chose.
BIND = "MCJAX_HOOK_BIND"
#: Seconds that initialize() may take in all, where the user gave a limit.
JOIN_TIMEOUT = "MCJAX_HOOK_JOIN_TIMEOUT"
#: This rank's own address for jax.device_put between CPU processes.
TRANSFER = "MCJAX_HOOK_TRANSFER"
#: This host's address, where its own name does not lead to one that others can use.
ADDRESS = "MCJAX_HOOK_ADDRESS"

# A rank that is done waits in JAX's shutdown barrier for its peers, and JAX aborts all of them
# when that takes longer than this. With a launcher watching there is no reason to: a week.
_SHUTDOWN_TIMEOUT_S = 7 * 24 * 3600
_JAX_INIT_TIMEOUT_S = 300  # JAX's own default
_MOST_TEXT = 32_000

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
    _record_exits()
    _watch_excepthook()
    sys.meta_path.insert(0, _Finder({"jax.distributed": _patch, "threading": _patch_threading}))


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
        self._send(f'{{"hello": {self.pid}, "process_id": "{rank}", "dump": {signum}}}')

    def _dump_on_signal(self):
        """Have the stacks of all threads written to the agent on a real-time signal."""
        try:
            import _signal
            import faulthandler

            signum = _signal.SIGRTMIN + 11
            faulthandler.register(signum, self._socket.fileno(), all_threads=True)
            return signum
        except (ImportError, AttributeError):
            return 0

    def _send(self, line):
        try:
            self._socket.sendall(line.encode("utf-8", "replace") + b"\n")
        except OSError:
            pass

    def tell(self, message):
        import json

        if os.getpid() == self.pid:  # a forked child is not this rank
            self._send(json.dumps(message))

    def tell_failed(self, status, **details):
        """Say once that this process will end with `status`."""
        if not self._told and status & 0xFF:
            self._told = True
            joined = self.joined or _jax_is_initialized()
            self.tell({"failed": {"status": status & 0xFF, "joined": joined, **details}})


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
        filled = fill_in(real, args, kwargs, environ)
        _agent.tell({"joining": _coordinates(filled)})
        _set_transfer_address(environ)
        _adjust_library(environ)
        _watch_exit()
        _await_coordinator(filled)
        result = real(**filled)
        _agent.joined = True
        _agent.tell({"joined": _coordinates(filled)})
        return result

    distributed.initialize = initialize


def _coordinates(filled):
    return {key: filled[key] for key in ("coordinator_address", "num_processes", "process_id")}


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

    try:
        jax.config.update("jax_cross_host_transfer_socket_address", address)
    except AttributeError:
        raise RuntimeError(
            f"--cpu-transfers: this jax ({jax.__version__}) cannot do it; a newer one can"
        ) from None


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
    if filled["process_id"] == 0:
        return
    import socket
    import time

    host, _, port = filled["coordinator_address"].rpartition(":")
    if not port.isdigit():
        return  # JAX has a word for that
    limit = filled.get("initialization_timeout") or _JAX_INIT_TIMEOUT_S
    deadline = time.monotonic() + limit
    pause = 0.002
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(pause)
            pause = min(pause * 1.2, 0.01)


# --- failures that JAX's exit would hide ---


def _watch_excepthook():
    chain = sys.excepthook
    if getattr(chain, "_mcjax", False):
        return

    def excepthook(kind, value, traceback):
        try:
            _tell_exception(kind, value, traceback)
        finally:
            chain(kind, value, traceback)

    excepthook._mcjax = True
    sys.excepthook = excepthook


def _tell_exception(kind, value, traceback):
    if _agent is None:
        return
    import traceback as tb

    try:
        text = "".join(tb.format_exception(kind, value, traceback))
        summary = "".join(tb.format_exception_only(kind, value)).strip()
    except Exception as error:  # an exception that cannot be printed
        text = summary = f"{kind.__name__} (cannot be shown: {error!r})"
    frame = _users_frame(tb.extract_tb(traceback))
    _agent.tell_failed(
        130 if issubclass(kind, KeyboardInterrupt) else 1,
        exception=kind.__name__,
        summary=summary[:_MOST_TEXT],
        traceback=text[-_MOST_TEXT:],
        where=frame and f"{frame.filename}:{frame.lineno} in {frame.name}",
        line=frame and frame.line,
        module=getattr(value, "name", None) if isinstance(value, ImportError) else None,
        python=sys.executable,
    )


def _users_frame(frames):
    """The innermost frame that is neither a library's nor the interpreter's own."""
    libraries = (os.path.dirname(os.__file__), "<")
    for frame in reversed(frames):
        library = "site-packages" in frame.filename or "dist-packages" in frame.filename
        if not library and not frame.filename.startswith(libraries):
            return frame
    return frames[-1] if frames else None


_last_exit_code = None
# Of the main thread, from initialize() on: how it ended tells how the program did.
_outermost_frame = None


def _record_exits():
    """Make every SystemExit known to us, from the program's first line on.

    Nothing in Python announces one that nobody catches: it reaches no excepthook, and `atexit`
    does not know the status. So the name leads to a subclass that remembers the last code.
    """
    import builtins

    real = builtins.SystemExit

    class RecordedExit(real):
        def __init__(self, *args):
            global _last_exit_code
            super().__init__(*args)
            _last_exit_code = self.code

        def __del__(self):
            # Freed while no Python code runs: the interpreter is about to leave because of it.
            _tell_if_ended_by_exit(1)

    RecordedExit.__name__ = RecordedExit.__qualname__ = real.__name__
    RecordedExit.__module__ = real.__module__
    RecordedExit.__doc__ = real.__doc__

    def exit(status=None, /):  # noqa: A001
        """Exit the interpreter by raising SystemExit(status)."""
        raise RecordedExit(status)

    builtins.SystemExit = RecordedExit
    sys.exit = exit
    if "threading" in sys.modules:
        _patch_threading(sys.modules["threading"])


def _patch_threading(threading):
    """A thread's sys.exit() stays silent: the original hook looks for the one real class."""
    real = threading.excepthook

    def excepthook(args):
        if not issubclass(args.exc_type, SystemExit):
            real(args)

    threading.excepthook = threading.__excepthook__ = excepthook


def _watch_exit():
    """From initialize() on, say of an uncaught exit or exception before JAX's barrier hides it."""
    import atexit
    import threading

    global _outermost_frame
    if _outermost_frame is not None:
        return
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame.f_back is not None:
        frame = frame.f_back
    _outermost_frame = frame
    atexit.register(_at_exit)  # after JAX's own, so it runs before
    _watch_excepthook()  # the program may have put its own on top of ours


def _at_exit():
    """What was not seen at once: an excepthook replaced later, an exception somebody holds."""
    global _outermost_frame
    uncaught = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if uncaught is not None and _program_was_cut_off():
        _tell_exception(type(uncaught), uncaught, uncaught.__traceback__)
    _tell_if_ended_by_exit(0)
    _outermost_frame = None  # what is freed from now on means nothing


def _tell_if_ended_by_exit(caller, getframe=sys._getframe):
    """Say that the program has ended by a SystemExit, if no Python code runs above us."""
    if _outermost_frame is None or _agent is None:
        return
    try:
        if caller and getframe(caller + 1):
            return
    except ValueError:
        pass
    import threading

    if threading.current_thread() is threading.main_thread() and _program_was_cut_off():
        _tell_exit(_last_exit_code)


def _program_was_cut_off():
    """Whether the outermost frame was left by an exception, not by returning."""
    import opcode

    frame = _outermost_frame
    if frame is None:
        return False
    last = frame.f_code.co_code[frame.f_lasti]
    return not opcode.opname[last].startswith("RETURN")


def _tell_exit(code):
    status = 0 if code is None else code if isinstance(code, int) else 1
    if _agent is not None:
        _agent.tell_failed(status, exit=True)

"""Waits at barriers of JAX's coordination service, and for its keys: named in stacks, and reported.

Such a wait is in C++. The call goes through a Python function named after the barrier or key, so
that a stack shows the name without any message. A rank that waits at a barrier of all ranks waits
forever if another rank has finished: so the launcher is told.
"""

from __future__ import annotations

import os
import sys
from types import FunctionType

from ..wire.exit_status import compute_signal_status
from ..wire.hook_messages import AtBarrier
from . import jax_internals, user_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .agent_link import AgentLink


_BARRIER = "wait_at_barrier"
_WAITS = (_BARRIER, "blocking_key_value_get", "blocking_key_value_get_bytes")
_MOST_NAME = 80
# A program that waits for less than so many milliseconds may go on without the others.
_LONG_MS = 30_000


def watch(link: AgentLink) -> None:
    """Name the waits of JAX's client in stacks, and report barriers of all ranks.

    Call this before JAX makes its client.
    """
    library = jax_internals.get_extension()
    client: Any = getattr(library, "DistributedRuntimeClient", None)
    for call in _WAITS:
        real = getattr(client, call, None)
        if real is None or isinstance(real, FunctionType):  # wrapped by an earlier call
            continue
        try:
            setattr(client, call, _wrap_wait(real, call, str(library.__file__), link))
        except (AttributeError, TypeError):  # an unknown version of jaxlib
            return


def _wrap_wait(real: Any, call: str, library: str, link: AgentLink) -> FunctionType:
    """Return a wrapper of `real` that shows its first argument as a function name in stacks."""
    # A path in jaxlib, so that the frame counts as JAX's.
    file = os.path.join(os.path.dirname(library), "coordination_service")
    body = _wait.__code__.replace(co_filename=file)

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(args[0] if args else kwargs.get("barrier_id", kwargs.get("key")))[:_MOST_NAME]
        some = ", ..." if args[2:] or kwargs.get("process_ids") else ""  # a barrier of some ranks
        code = body.replace(co_name=f"{call}({name!r}{some})")
        named = FunctionType(code, {})
        timeout = args[1] if args[1:] else kwargs.get("timeout_in_ms")
        is_long = isinstance(timeout, (int, float)) and timeout >= _LONG_MS
        if call != _BARRIER or some or not is_long:
            return named(real, self, args, kwargs)
        link.send(AtBarrier(name, user_lines.find_current_line()))
        try:
            return named(real, self, args, kwargs)
        except BaseException:
            link.send(AtBarrier())  # the others may still come, and this rank goes on
            raise

    code = wait.__code__.replace(co_filename=file, co_name=call)
    outer = FunctionType(code, globals(), None, None, wait.__closure__)
    outer.__doc__ = real.__doc__
    return outer


def _wait(real: Any, client: Any, args: Any, kwargs: Any) -> Any:
    return real(client, *args, **kwargs)


# --- JAX's exit barrier, to which a failed rank comes only when Python has ended ---

# Nanoseconds for the message that a failed rank has come to the barrier.
_ARRIVAL_NS = 200_000_000
# Kinds of notification of a C sigevent: send a signal, call a function in a thread.
_SIGEV_SIGNAL, _SIGEV_THREAD = 0, 2


def postpone(status: int) -> None:
    """Move JAX's exit barrier behind Python's own end; do nothing if JAX's names are unknown.

    Then this process only shows that it has come to the barrier, and ends, so that ranks in a
    collective need not wait for it. The process with JAX's service has to wait.

    Args:
        status: exit status of this process; that of SIGINT if this signal ends it.

    """
    import atexit
    from contextvars import ContextVar

    clean_up = getattr(sys.modules.get("jax._src.api"), "clean_up", None)
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    if clean_up is None or state is None or backends is None:
        return
    prevent_destruction(backends)  # which may wait for other processes
    has_service = getattr(state, "service", None) is not None  # without it JAX aborts all ranks
    leave = None if has_service else _make_exit_timer(status)
    # Python destroys the main thread's context after everything else.
    last: ContextVar[_Barrier] = ContextVar("exit barrier")
    last.set(_Barrier(state.shutdown, leave))
    atexit.unregister(clean_up)


class _Barrier:
    """JAX's exit barrier, entered when this object is destroyed.

    Args:
        enter: function that waits in the barrier.
        leave: function that makes this process end soon, whatever it waits for; or None.

    """

    def __init__(self, enter: Callable[[], object], leave: Callable[[], object] | None) -> None:
        self._enter = enter
        self._leave = leave

    def __del__(self) -> None:  # uses no globals: they are gone
        if self._leave is not None:
            self._leave()
        self._enter()


def prevent_destruction(thing: Any) -> None:
    """Keep Python from destroying an object, and all that it holds, when the process ends."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _make_exit_timer(status: int) -> Callable[[], object] | None:
    """Return a function that ends this process with `status` after _ARRIVAL_NS; None on macOS.

    The function calls only C, because Python has ended by then.
    """
    import ctypes
    import functools
    import signal
    import struct
    import time

    libc = ctypes.CDLL(None)
    how = status, 0, _SIGEV_THREAD, ctypes.cast(libc._exit, ctypes.c_void_p).value
    if status == compute_signal_status(signal.SIGINT):  # as Python does, which shells rely on
        how = 0, signal.SIGINT, _SIGEV_SIGNAL, 0
    event = ctypes.create_string_buffer(struct.pack("PiiP", *how), 64)  # a sigevent
    after = (ctypes.c_long * 4)(0, 0, 0, _ARRIVAL_NS)  # an itimerspec
    timer = ctypes.c_void_p()
    try:
        if libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
            return None
        return functools.partial(libc.timer_settime, timer, 0, ctypes.byref(after), None)
    except AttributeError:
        return None

"""Waits at barriers of JAX's coordination service, and for its keys: named in stacks, and reported.

Such a wait is in C++. The call goes through a Python function named after the barrier or key, so
that a stack shows the name without any message. A rank that waits at a barrier of all ranks waits
forever if another rank has finished: so the launcher is told.
"""

from __future__ import annotations

import os
from types import FunctionType

from ..wire.hook_messages import AtBarrier
from . import jax_internals, user_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
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

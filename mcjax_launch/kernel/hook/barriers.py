"""Names the barrier in which a rank waits where its stack is shown.

A wait at a barrier of the coordination service is in C++, and ranks that wait at different ones
wait for ever. The call goes through a function with the name of that barrier, so that a stack tells
it: nothing else is sent, and nobody else is asked.
"""

from __future__ import annotations

import os
import sys
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_NAME = 80


def name_in_stacks() -> None:
    """See the barriers of this process's program; call it before JAX makes its client."""
    distributed: Any = sys.modules.get("jax._src.distributed")
    library: Any = getattr(distributed, "_jax", None) or getattr(distributed, "xla_extension", None)
    client: Any = getattr(library, "DistributedRuntimeClient", None)
    real = getattr(client, "wait_at_barrier", None)
    if real is None or isinstance(real, FunctionType):  # an earlier call has done it
        return
    # A file of jaxlib's, as the call itself would be if it were Python.
    file = os.path.join(os.path.dirname(str(library.__file__)), "coordination_service")
    body = _at_barrier.__code__.replace(co_filename=file)

    def wait_at_barrier(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(args[0] if args else kwargs.get("barrier_id"))[:_MOST_NAME]
        code = body.replace(co_name=f"wait_at_barrier({name!r})")
        return FunctionType(code, {})(real, self, args, kwargs)

    code = wait_at_barrier.__code__.replace(co_filename=file)
    named = FunctionType(code, globals(), None, None, wait_at_barrier.__closure__)
    named.__doc__ = real.__doc__
    try:
        client.wait_at_barrier = named
    except (AttributeError, TypeError):  # another jaxlib than we know
        pass


def _at_barrier(real: Any, client: Any, args: Any, kwargs: Any) -> Any:
    return real(client, *args, **kwargs)

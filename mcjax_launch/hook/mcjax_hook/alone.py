"""`jax.distributed` without an agent: initialize() gets what its caller left out, and no more."""

from __future__ import annotations

from . import gpus, slices
from .initialize import fill_in, silence_proxy_warning
from .wrapping import in_place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Without a launcher that watches, JAX's own is right.
_LAUNCHERS_OWN = "shutdown_timeout_seconds"


def fill_in_initialize(distributed: Any, environ: Mapping[str, str]) -> None:
    """Stand before JAX's own function."""
    real = distributed.initialize

    def initialize(*args: Any, **kwargs: Any) -> Any:
        try:
            filled = fill_in(real, args, kwargs, environ)
        except TypeError:  # a wrong call: JAX says what is wrong
            return real(*args, **kwargs)
        if _LAUNCHERS_OWN not in kwargs:
            filled.pop(_LAUNCHERS_OWN, None)
        silence_proxy_warning(environ)
        gpus.leave_to_program(environ)
        result = real(**filled)
        slices.replace_slice_index(filled)
        return result

    distributed.initialize = in_place_of(real, initialize)
